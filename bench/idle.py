#!/usr/bin/python3
"""What an idle process costs: a rank that waits in an exchange for another one that stands still.

Two ranks train; one is stopped by a signal; for some seconds the other has nothing to do but heartbeats. Its CPU
time in that span, in percent of a core, is the figure.
"""

import json
import os
import signal
import subprocess
import sys
import time

import lab

SECONDS = 6  # less than the 10 s after which a silent rank is given up


def main():
    job = subprocess.Popen([lab.VIRGA, "run", "--ranks", "2", "--", lab.VIRGA, "train", "--model", "lenet5", "--steps",
                            "1000000", "--threads", "1"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        for line in job.stdout:
            if "step" in line:
                break
        else:
            sys.exit("the job ended before its first step")
        ranks = ranks_of(job.pid)
        os.kill(ranks[1], signal.SIGSTOP)
        time.sleep(1)  # what was under way ends
        before = cpu_seconds(ranks[0])
        time.sleep(SECONDS)
        share = 100 * (cpu_seconds(ranks[0]) - before) / SECONDS
    finally:
        job.terminate()
        job.communicate()
    print(json.dumps({"benchmark": "idle", "cpu_percent": share, "bar": 0.5}))
    print(f"a rank that waits for another one uses {share:.2f} % of a core (bar: under 0.5)")


def ranks_of(launcher):
    """Process ids of the ranks that a launcher has started, in rank order."""
    with open(f"/proc/{launcher}/task/{launcher}/children", encoding="utf-8") as file:
        return sorted(int(pid) for pid in file.read().split())


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
