#!/usr/bin/python3
"""The peer: PyTorch DistributedDataParallel over Gloo on the job of `virga train` and examples/python/fashion_mnist.py.

Same model, same data, same scaling and normalisation, same order of samples in kind (a seeded permutation dealt out
batch by batch), same SGD. Run it once per rank with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set, as `virga lab`
does. Rank 0 prints one line of JSON. With --hook virga the same script is measured with `virga.attach()`.

    virga lab --hosts 4 --ranks-per-host 1 --rate 200mbit -- \
        /usr/bin/python3 bench/peers/ddp.py --model resnet18 --batch-size 16 --steps 20 --threads 1 --hook fp16
"""

import argparse
import json
import os
import statistics
import sys
import time

# Gloo must not pick its interface by the host's name: inside the lab the wire is e0.
INTERFACE = "e0" if os.path.exists("/sys/class/net/e0") else "lo"
os.environ.setdefault("GLOO_SOCKET_IFNAME", INTERFACE)

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "examples", "python"))
from images import FASHION_MNIST, MODELS, Split, batches, count_right  # noqa: E402


def wrap(model, options):
    ddp = DistributedDataParallel(model, bucket_cap_mb=options.bucket_cap_mb, gradient_as_bucket_view=True,
                                  static_graph=True, broadcast_buffers=False)
    if options.hook == "fp16":
        ddp.register_comm_hook(dist.group.WORLD, default_hooks.fp16_compress_hook)
    elif options.hook == "powersgd":  # from the second step on; PyTorch's default waits for a thousand
        state = powerSGD_hook.PowerSGDState(dist.group.WORLD, matrix_approximation_rank=options.powersgd_rank,
                                            start_powerSGD_iter=2)
        ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    elif options.hook == "virga":
        import virga.torch as virga
        virga.init()
        virga.attach(ddp, strategy="hitopk", density=options.density)
    return ddp


def is_over(options, step, begin):
    """Rank 0's clock decides for all, or ranks would stop at different steps."""
    if options.seconds is None:
        return step >= options.steps
    flag = torch.tensor([float(time.perf_counter() - begin >= options.seconds)])
    dist.broadcast(flag, 0)
    return bool(flag.item())


def train(ddp, split, options, rank, world):
    optimizer = torch.optim.SGD(ddp.parameters(), lr=options.lr, momentum=options.momentum,
                                weight_decay=options.weight_decay)
    source = batches(len(split), options.batch_size, rank, world, options.seed)
    seconds, losses = [], []
    begin = time.perf_counter()
    while not is_over(options, len(seconds) - options.warmup_steps, begin):
        start = time.perf_counter()
        x, y = split.load(next(source))
        optimizer.zero_grad()
        loss = F.cross_entropy(ddp(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
        if len(seconds) == options.warmup_steps:
            begin = time.perf_counter()
    return seconds[options.warmup_steps:], losses


def evaluate(model, split, rank, world):
    """Accuracy over the whole split."""
    right = count_right(model, split, len(split), rank, world)
    dist.all_reduce(right)
    return right.item() / len(split)


def parse():
    parser = argparse.ArgumentParser(description="PyTorch DDP over Gloo on the job of `virga train`")
    parser.add_argument("--model", choices=sorted(MODELS), default="resnet18")
    parser.add_argument("--data", default=FASHION_MNIST, help="folder with the four IDX .gz files")
    parser.add_argument("--batch-size", type=int, default=16, help="per rank")
    parser.add_argument("--hook", choices=["none", "fp16", "powersgd", "virga"], default="none")
    parser.add_argument("--powersgd-rank", type=int, default=4, help="of its approximation")
    parser.add_argument("--density", type=float, default=0.01, help="of virga's hitopk")
    parser.add_argument("--bucket-cap-mb", type=float, default=25)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seconds", type=float, help="stop by rank 0's clock instead of by --steps")
    parser.add_argument("--warmup-steps", type=int, default=2, help="first steps, left out of steps, time and median")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--weight-decay", type=float, default=5e-4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--evaluate", action="store_true", help="also measure the test accuracy at the end")
    return parser.parse_args()


def main():
    options = parse()
    torch.set_num_threads(options.threads)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(options.seed)
    model = MODELS[options.model][0]()
    ddp = wrap(model, options)
    seconds, losses = train(ddp, Split(options.data, "train", options.model), options, rank, world)
    result = {
        "system": "ddp-gloo", "torch": torch.__version__, "model": options.model, "hook": options.hook,
        "ranks": world, "threads": options.threads, "batch_size": options.batch_size,
        "bucket_cap_mb": options.bucket_cap_mb, "parameters": sum(p.numel() for p in model.parameters()),
        "steps": len(seconds), "step_seconds_median": statistics.median(seconds) if seconds else None,
        "train_loss": statistics.fmean(losses[-20:]),
    }
    if options.evaluate:
        result["test_accuracy"] = evaluate(model, Split(options.data, "t10k", options.model), rank, world)
    if rank == 0:
        print(json.dumps(result), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
