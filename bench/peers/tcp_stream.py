#!/usr/bin/python3
"""What a link of the lab carries: the goodput of one plain TCP stream between two hosts, without any library of ours.

Run it on every rank of a lab of two hosts or more, or call `goodput()` there. Rank 0 prints one line of JSON.

    virga lab --hosts 2 --rate 1gbit -- /usr/bin/python3 bench/peers/tcp_stream.py
"""

import json
import os
import socket
import statistics
import time

SIZE = 200_000_000  # bytes of one stream: at 1 Gbit/s, 1.7 s; a thousand times what the lab's token buckets hold
CHUNK = 1 << 20
STREAMS = 3  # one after another
SECONDS = 60  # for the two to meet, and for a chunk


def goodput(address, port):
    """Payload bytes a second from the first rank of host 1 to rank 0, the median of three streams.

    Called on every rank with the address of rank 0 and a free port there; returns None on the others.
    """
    if os.environ["RANK"] == "0":
        return statistics.median(receive(port))
    if (os.environ["GROUP_RANK"], os.environ["LOCAL_RANK"]) == ("1", "0"):
        for _ in range(STREAMS):
            send(address, port)
    return None


def receive(port):
    """Bytes a second of each stream, from its first chunk on: what went before was no transfer."""
    result = []
    buffer = memoryview(bytearray(CHUNK))
    with socket.create_server(("", port)) as server:
        server.settimeout(SECONDS)
        for _ in range(STREAMS):
            connection, _ = server.accept()
            with connection:
                connection.settimeout(SECONDS)
                first = connection.recv_into(buffer)
                begin = time.perf_counter()
                got = first
                while count := connection.recv_into(buffer):
                    got += count
                if got != SIZE:
                    raise ConnectionError(f"{got} of {SIZE} bytes came")
                result.append((got - first) / (time.perf_counter() - begin))
    return result


def send(address, port):
    chunk = bytes(CHUNK)
    with connect(address, port) as connection:
        for left in range(SIZE, 0, -CHUNK):
            connection.sendall(chunk[:left])


def connect(address, port):
    """Waits for the other end to listen."""
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            return socket.create_connection((address, port), timeout=SECONDS)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def main():
    result = goodput(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if result is not None:
        print(json.dumps({"goodput_bytes_per_second": result}), flush=True)


if __name__ == "__main__":
    main()
