"""Virga for PyTorch.

    import torch, virga.torch as virga

    job = virga.init()                          # reads torchrun's, mpirun's or srun's environment
    replica = virga.Replica(model, optimizer, strategy="hitopk", density=0.01)

    for x, y in loader:
        optimizer.zero_grad()
        loss_fn(model(x), y).backward()         # gradients travel while backward runs; then they are the mean
        optimizer.step()
"""

from virga.errors import (Aborted, Cancelled, Corrupt, DeadlineExceeded, Error, InvalidArgument, Mismatch, NonFinite,
                          PeerLost, ResourceExhausted, Unavailable)
from virga.torch.collectives import (Group, Residual, Work, allgather, allreduce, allreduce_sparse, barrier, broadcast,
                                     new_group, reduce_scatter)
from virga.torch.ddp import Attached, attach
from virga.torch.job import Job, init, is_initialized, shutdown, strategies
from virga.torch.replica import Replica

__all__ = [
    "Aborted", "Attached", "Cancelled", "Corrupt", "DeadlineExceeded", "Error", "Group", "InvalidArgument", "Job",
    "Mismatch", "NonFinite", "PeerLost", "Replica", "Residual", "ResourceExhausted", "Unavailable", "Work",
    "allgather", "allreduce", "allreduce_sparse", "attach", "barrier", "broadcast", "init", "is_initialized",
    "new_group", "reduce_scatter", "shutdown", "strategies",
]
