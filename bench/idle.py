#!/usr/bin/python3
"""What an idle process costs: the CPU time of a rank that waits for another one, in percent of a core."""

import json
import os
import subprocess
import time

import lab

SECONDS = 10


def main():
    environment = dict(os.environ, RANK="0", WORLD_SIZE="2", LOCAL_RANK="0", LOCAL_WORLD_SIZE="2",
                       MASTER_ADDR="127.0.0.1", MASTER_PORT="29400")
    rank = subprocess.Popen([lab.VIRGA, "train", "--model", "lenet5", "--steps", "1"], env=environment,
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(5)  # start-up is not idling
        before = cpu_seconds(rank.pid)
        time.sleep(SECONDS)
        share = 100 * (cpu_seconds(rank.pid) - before) / SECONDS
    finally:
        rank.kill()
        rank.wait()
    print(json.dumps({"benchmark": "idle", "cpu_percent": share, "bar": 0.5}))
    print(f"a rank that waits for another one uses {share:.2f} % of a core (bar: under 0.5)")


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
