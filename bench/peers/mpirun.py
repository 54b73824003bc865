"""Starts Open MPI across the hosts of a lab, from a program that the lab runs on every rank.

mpirun logs in to other machines to start its daemon there. Emulated ones run no sshd, so a door stands in for it on
every host but the first: it runs the one command that knocks. mpirun and its daemons are the real ones; what they say
to each other, and ranks of different hosts, goes through the hosts' links. This file is also the program that knocks:
mpirun runs it as `mpirun.py HOST COMMAND...`.
"""

import os
import socket
import subprocess
import sys

import tcp_stream

# The lab is one machine: a core has ranks of several hosts. So no rank is bound to one, as by default the first of
# each host would be to the same, and one that waits lets others run.
SHARED_CORES = ["--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]
# Plain TCP between hosts and shared memory inside; without pml ob1, UCX would do it all.
TRANSPORTS = ["--mca", "pml", "ob1", "--mca", "btl", "self,vader,tcp"]
# The hosts of a lab share /tmp but not /dev/shm, which goes when the lab goes: nothing is left behind by a job that is
# killed, and labs side by side, whose process numbers are the same, don't meet.
SESSION_FOLDER = ["--mca", "orte_tmpdir_base", "/dev/shm"]
# The lab's wire; mpirun asks each host for its daemon itself; a daemon lasts as long as its command.
WIRING = ["--mca", "btl_tcp_if_include", "e0", "--mca", "oob_tcp_if_include", "e0", "--mca", "plm_rsh_no_tree_spawn",
          "1", "--leave-session-attached", "--mca", "plm_rsh_agent", f"{sys.executable} -B {os.path.abspath(__file__)}"]
SECONDS = 60  # for the daemon's command to come


def run(command, parameters):
    """Runs ``command`` as one job on all ranks of the lab; called on every one of them. Returns the exit status.

    ``parameters``: Open MPI's, by name. Where there is nothing to start, it returns at once.
    """
    if os.environ["LOCAL_RANK"] != "0":
        return 0
    port = int(os.environ["MASTER_PORT"])
    if os.environ["RANK"] != "0":
        return answer(port)
    ranks, per_host = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_WORLD_SIZE"])
    hosts = ",".join(f"host{i}:{per_host}" for i in range(ranks // per_host))
    tuning = [word for name, value in parameters.items() for word in ("--mca", name, str(value))]
    return subprocess.run(["mpirun", "--allow-run-as-root", "--host", hosts, "-n", str(ranks), *SHARED_CORES,
                           *TRANSPORTS, *SESSION_FOLDER, *WIRING, *tuning, *command], stdin=subprocess.DEVNULL,
                          check=False).returncode


def answer(port):
    """Runs the command of the first that knocks, to its end."""
    with socket.create_server(("", port)) as door:
        door.settimeout(SECONDS)
        connection, _ = door.accept()
        with connection, connection.makefile() as lines:
            connection.settimeout(SECONDS)
            return subprocess.run(["sh", "-c", lines.readline()], stdin=subprocess.DEVNULL, check=False).returncode


def knock(host, words):
    """Has the command run behind the door of a host, to its end."""
    with tcp_stream.connect(host, int(os.environ["MASTER_PORT"])) as door:
        door.sendall(" ".join(words).encode() + b"\n")
        door.settimeout(None)
        door.recv(1)


if __name__ == "__main__":
    knock(sys.argv[1], sys.argv[2:])
