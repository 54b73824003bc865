"""What the benchmarks share: runs of ours and of the peer in the same kind of emulated cluster."""

import json
import os
import statistics
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VIRGA = os.path.join(ROOT, "build", "release", "bin", "virga")
PACKAGE = os.path.join(ROOT, "build", "release", "python")
EXAMPLES = os.path.join(ROOT, "examples", "python")
PEERS = os.path.join(ROOT, "bench", "peers")
DDP = os.path.join(PEERS, "ddp.py")
SYSTEM_PYTHON = "/usr/bin/python3"  # the one that Debian's python3-torch belongs to


class Run:
    """One finished run: rank 0's summary and what the lab's own devices counted."""

    def __init__(self, summary, lab):
        self.summary = summary
        self.lab = lab

    def bytes_sent(self):
        """Bytes that left each host's shaped device, headers of all layers included."""
        return [host["bytes_sent"] for host in self.lab["hosts"]]


class RunFailed(SystemExit):
    """Ends the benchmark with what the run has printed, unless the benchmark knows better."""


def in_lab(command, hosts, ranks_per_host, rate, timeout=600, show=False):
    """Runs one command a rank; returns (standard output, the lab's report). Raises RunFailed if it fails."""
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "lab.json")
        lab = [VIRGA, "lab", "--hosts", str(hosts), "--ranks-per-host", str(ranks_per_host), "--rate", rate,
               "--timeout", str(timeout), "--json", report, "--"]
        done = subprocess.run(lab + command, env={**os.environ, "PYTHONPATH": PACKAGE}, stdin=subprocess.DEVNULL,
                              stdout=None if show else subprocess.PIPE,
                              stderr=None if show else subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            raise RunFailed(f"{' '.join(lab + command)}\nended with status {done.returncode}\n{done.stdout or ''}")
        with open(report, encoding="utf-8") as file:
            return done.stdout, json.load(file)


def train(arguments, hosts=4, ranks_per_host=1, rate="200mbit", show=False):
    """`virga train` on every rank of a lab."""
    with tempfile.TemporaryDirectory() as folder:
        metrics = os.path.join(folder, "run.jsonl")
        _, lab = in_lab([VIRGA, "train", "--metrics", metrics] + arguments, hosts, ranks_per_host, rate, show=show)
        with open(metrics, encoding="utf-8") as file:
            events = [json.loads(line) for line in file]
    return Run(events[-1], lab)


def script(path, arguments, hosts, ranks_per_host, rate, timeout=600):
    """A Python script on every rank of a lab; rank 0 prints its summary as a line of JSON."""
    output, lab = in_lab([SYSTEM_PYTHON, "-B", path] + arguments, hosts, ranks_per_host, rate, timeout)
    lines = [line for line in output.splitlines() if line.startswith("{")]
    return Run(json.loads(lines[-1]), lab)


def ddp(arguments, hosts=4, ranks_per_host=1, rate="200mbit", timeout=600):
    """PyTorch DDP over Gloo on every rank of a lab of the same kind."""
    return script(DDP, arguments, hosts, ranks_per_host, rate, timeout)


def example(name, arguments, hosts=4, ranks_per_host=1, rate="200mbit"):
    """One of examples/python on every rank of a lab of the same kind."""
    return script(os.path.join(EXAMPLES, name), arguments, hosts, ranks_per_host, rate)


def in_turn(steps, rounds, hosts, ranks_per_host, rate, timeout=1800):
    """Programs one after another in one lab, round after round; see bench/peers/in_turn.py for a step.

    Returns the rounds' results by the step's name: {name: [{"result": ..., "bytes_sent": [...]}, ...]}.
    """
    with tempfile.TemporaryDirectory() as folder:
        plan = os.path.join(folder, "plan.json")
        with open(plan, "w", encoding="utf-8") as file:
            json.dump({"rounds": rounds, "steps": steps}, file)
        output, _ = in_lab([SYSTEM_PYTHON, "-B", os.path.join(PEERS, "in_turn.py"), plan], hosts, ranks_per_host, rate,
                           timeout)
    results = {}
    for line in output.splitlines():
        if line.startswith('{"name": '):
            event = json.loads(line)
            results.setdefault(event.pop("name"), []).append(event)
    return results


def median_of(runs, key):
    return statistics.median(run.summary[key] for run in runs)


def table(header, rows):
    """Prints a table with aligned columns."""
    widths = [max(len(str(row[i])) for row in [header] + rows) for i in range(len(header))]
    for number, row in enumerate([header] + rows):
        cells = [str(cell).ljust(width) if i == 0 else str(cell).rjust(width)
                 for i, (cell, width) in enumerate(zip(row, widths))]
        print("  ".join(cells).rstrip(), flush=True)
        if number == 0:
            print("  ".join("-" * width for width in widths))
