"""What starts ranks: Slurm's environment, torchrun and mpirun on emulated hosts. The examples' test has the rest."""

import os
import socket
import subprocess
import sys
import tempfile

import pytest
from ranks import VIRGA, environment, python

SCRIPT = """
import torch, virga.torch as virga
torch.set_num_threads(1)
torch.manual_seed(1)
job = virga.init()
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
replica = virga.Replica(model, optimizer, strategy="hitopk", density=0.5)
for step in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).pow(2).mean().backward()
    optimizer.step()
replica.end_epoch()
print(f"trained: rank {job.rank} of {job.world_size}, {job.local_world_size} here, {job.hosts} hosts", flush=True)
"""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="the lab needs root")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def slurm(rank: int, nodes: str, **more: str):
    """What srun sets for two tasks on one node."""
    return environment(SLURM_PROCID=str(rank), SLURM_NTASKS="2", SLURM_LOCALID=str(rank), SLURM_NODEID="0",
                       SLURM_TASKS_PER_NODE="2", SLURM_JOB_NODELIST=nodes, SLURM_STEP_ID="0", **more)


def outputs_of(environments):
    ranks = [subprocess.Popen(python("-c", SCRIPT), env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True) for variables in environments]
    try:
        texts = [rank.communicate(timeout=60)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], texts
    return texts


@pytest.mark.parametrize("meets_by", ["master_port", "job_id"])
def test_slurm(meets_by):
    if meets_by == "master_port":
        more = {"SLURM_JOB_ID": "17", "MASTER_PORT": str(free_port())}
    else:
        more = {"SLURM_JOB_ID": str(os.getpid())}  # the port follows from it
    for rank, text in enumerate(outputs_of([slurm(rank, "localhost", **more) for rank in range(2)])):
        assert f"trained: rank {rank} of 2, 2 here, 1 hosts" in text


def test_slurm_without_a_list_of_nodes_says_what_is_missing():
    done = subprocess.run(python("-c", SCRIPT), env=slurm(0, "", SLURM_JOB_ID="17"), timeout=60, capture_output=True,
                          text=True, check=False)
    assert done.returncode == 1 and "SLURM_JOB_NODELIST is missing" in done.stderr, done.stderr


def test_mpirun_on_one_machine_needs_nothing_else():
    text = run_all(["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", *python("-c", SCRIPT)])
    for rank in range(2):
        assert f"trained: rank {rank} of 2, 2 here, 1 hosts" in text, text[-4000:]


def run_all(command, **more):
    done = subprocess.run(command, env=environment(**more), timeout=120, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, check=False)
    text = done.stdout + done.stderr
    assert done.returncode == 0, text[-4000:]
    return text


@needs_root
def test_torchrun_on_every_host_of_the_lab():
    """As it is done by hand: one agent a machine, two ranks each. The lab's variables say who is who and where."""
    agent = ('exec "$0" -B -m torch.distributed.run --nnodes 2 --nproc_per_node 2 --node_rank "$RANK" --master_addr '
             '"$MASTER_ADDR" --master_port "$MASTER_PORT" --redirects 1 --tee 1 --log_dir "$1/$RANK" "$2"')
    with tempfile.TemporaryDirectory() as folder:
        script = os.path.join(folder, "train.py")
        with open(script, "w", encoding="utf-8") as file:
            file.write(SCRIPT)
        text = run_all([VIRGA, "lab", "--hosts", "2", "--timeout", "100", "sh", "-c", agent, sys.executable, folder,
                        script], GLOO_SOCKET_IFNAME="e0")
    for rank in range(4):
        assert f"trained: rank {rank} of 4, 2 here, 2 hosts" in text, text[-4000:]


# mpirun logs in to other machines to start its daemon there. Emulated ones run no sshd: a door that runs what it is
# told stands in for it, on every host but the first; mpirun and its daemons are the real ones.
DOOR = """
import socket, subprocess
with socket.create_server(("", 2222)) as server:
    print("door open", flush=True)
    server.settimeout(60)
    connection, _ = server.accept()
    with connection, connection.makefile() as lines:
        subprocess.run(["sh", "-c", lines.readline()], stdin=subprocess.DEVNULL, check=True)
"""
KNOCK = """
import socket, sys, time
deadline = time.monotonic() + 30
while True:
    try:
        connection = socket.create_connection((sys.argv[1], 2222), timeout=60)
        break
    except ConnectionRefusedError:
        if time.monotonic() > deadline:
            raise
with connection:
    connection.sendall(" ".join(sys.argv[2:]).encode() + b"\\n")
    connection.settimeout(None)
    connection.recv(1)
"""


@needs_root
def test_mpirun_across_hosts_of_the_lab():
    launch = ('unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK MASTER_ADDR MASTER_PORT; '
              f'if [ "$(hostname)" != host0 ]; then exec "{sys.executable}" -c "$DOOR"; fi; '
              'exec mpirun --allow-run-as-root --host host0:2,host1:2 -n 4 -x PYTHONPATH --mca plm_rsh_agent "$KNOCK" '
              '"$@"')
    with tempfile.TemporaryDirectory() as folder:
        agent = os.path.join(folder, "knock")
        with open(agent, "w", encoding="utf-8") as file:
            file.write(f"#!{sys.executable}\n{KNOCK}")
        os.chmod(agent, 0o700)
        script = os.path.join(folder, "train.py")
        with open(script, "w", encoding="utf-8") as file:
            file.write(SCRIPT)
        text = run_all([VIRGA, "lab", "--hosts", "2", "--timeout", "100", "sh", "-c", launch, "sh", *python(script)],
                       DOOR=DOOR, KNOCK=agent)
    for rank in range(4):
        assert f"trained: rank {rank} of 4, 2 here, 2 hosts" in text, text[-4000:]
