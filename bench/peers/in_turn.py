#!/usr/bin/python3
"""Runs programs one after another on every rank of one lab, in rounds; rank 0 tells what came of each.

Usage: in_turn.py PLAN, a file with the JSON of {"rounds": 3, "steps": [{"name": ..., "command": [...]}, ...]}. A
program's result is the last line of JSON that rank 0 prints. A step with "file" true gets `--json FILE` appended
instead, for rank 0 to write it there; one with "silent" true has no result. Rank 0 prints one line of JSON a step: its
name, its result, and the bytes that left each host's device meanwhile, headers included.

All ranks wait for each other before and after every program, so none troubles another one's measurement. Every
program gets a MASTER_PORT of its own, with some free ones above it.
"""

import json
import os
import socket
import subprocess
import sys

import tcp_stream

PORTS = 8  # for each program
SENT = "/sys/class/net/e0/statistics/tx_bytes"


class Meeting:
    """Where all ranks meet at rank 0."""

    def __init__(self, rank, ranks, address, port):
        self.peers = []
        if rank == 0:
            with socket.create_server((address, port), backlog=ranks) as server:
                self.peers = [server.accept()[0].makefile("rw") for _ in range(1, ranks)]
            self.root = None
        else:
            connection = tcp_stream.connect(address, port)
            connection.settimeout(None)  # a program may take long; the lab has a deadline
            self.root = connection.makefile("rw")

    def gather(self, value):
        """Every rank's value at rank 0, in any order; no rank returns before all have come."""
        if self.root is not None:
            self.say(self.root, value)
            self.hear(self.root)
            return None
        values = [value] + [self.hear(peer) for peer in self.peers]
        for peer in self.peers:
            self.say(peer, None)
        return values

    @staticmethod
    def say(stream, value):
        stream.write(json.dumps(value) + "\n")
        stream.flush()

    @staticmethod
    def hear(stream):
        line = stream.readline()
        if not line:
            sys.exit("another rank has left the lab")
        return json.loads(line)


def bytes_sent():
    with open(SENT, encoding="utf-8") as file:
        return int(os.environ["GROUP_RANK"]), int(file.read())


def run(step, port, path):
    """The program's result, on rank 0."""
    command = step["command"] + (["--json", path] if step.get("file") else [])
    done = subprocess.run(command, env={**os.environ, "MASTER_PORT": str(port)}, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nended with status {done.returncode}\n{done.stdout}")
    if os.environ["RANK"] != "0" or step.get("silent"):
        return None
    if step.get("file"):
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    return json.loads([line for line in done.stdout.splitlines() if line.startswith(("[", "{"))][-1])


def main():
    path = sys.argv[1]
    with open(path, encoding="utf-8") as file:
        plan = json.load(file)
    rank, port = int(os.environ["RANK"]), int(os.environ["MASTER_PORT"])
    meeting = Meeting(rank, int(os.environ["WORLD_SIZE"]), os.environ["MASTER_ADDR"], port)
    for step in plan["steps"] * plan["rounds"]:
        port += PORTS
        before = meeting.gather(bytes_sent())
        result = run(step, port, path + ".result")
        after = meeting.gather(bytes_sent())
        if rank == 0:
            first, last = dict(before), dict(after)
            print(json.dumps({"name": step["name"], "result": result,
                              "bytes_sent": [last[host] - first[host] for host in sorted(first)]}), flush=True)


if __name__ == "__main__":
    main()
