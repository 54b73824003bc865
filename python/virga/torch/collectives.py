"""Collectives on tensors. CPU tensors that are contiguous are worked on in place, without a copy; others (strided, or
on a GPU) go through a contiguous copy on the CPU, pinned where CUDA is there.

All ranks of a group call the same operations in the same order. ``async_op=True`` returns a ``Work`` at once; without
it the call waits. Floating-point reductions take float32.
"""

from typing import List, Optional, Sequence, Union

import torch

from virga import _core
from virga.errors import invalid
from virga.torch.job import current


class Group:
    """Some ranks of the job, in the order that numbers its members."""

    def __init__(self, ranks: Sequence[int]):
        job = current()
        self.ranks: List[int] = [int(rank) for rank in ranks]
        if not self.ranks or len(set(self.ranks)) != len(self.ranks):
            raise invalid(f"a group needs ranks, each once; got {self.ranks}")
        if min(self.ranks) < 0 or max(self.ranks) >= job.world_size:
            raise invalid(f"a group of {self.ranks} in a job of {job.world_size} ranks")

    @property
    def size(self) -> int:
        return len(self.ranks)

    def __contains__(self, rank: int) -> bool:
        return rank in self.ranks


def new_group(ranks: Sequence[int]) -> Group:
    """A group of these ranks. Nothing is sent: members need not agree beforehand. Raises ``InvalidArgument`` for ranks
    that are not there or come twice."""
    return Group(ranks)


def _members(group: Optional[Group]) -> Optional[List[int]]:
    if group is not None and current().rank not in group:
        raise invalid(f"rank {current().rank} is not a member of the group {group.ranks}")
    return None if group is None else group.ranks


def _size(group: Optional[Group]) -> int:
    return current().world_size if group is None else group.size


class Work:
    """An operation that is under way. Its tensor must not be touched before ``wait()``."""

    def __init__(self, core: "_core.Work", result: torch.Tensor, staged: Optional[torch.Tensor] = None):
        self._core = core
        self._result = result
        self._staged = staged

    def done(self) -> bool:
        """Whether ``wait()`` would return at once."""
        return self._core.done()

    def wait(self) -> torch.Tensor:
        """Returns the result; raises what ended the operation. Ctrl-C ends the job on all ranks."""
        self._core.wait()
        if self._staged is not None:
            with torch.no_grad():
                self._result.copy_(self._staged.view(self._result.shape))
            self._staged = None
        return self._result


def stage(tensor: torch.Tensor) -> torch.Tensor:
    """Memory that the library can work on: the tensor itself, or a contiguous copy on the CPU."""
    if tensor.device.type == "cpu":
        return tensor.detach().contiguous()
    staged = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
    staged.copy_(tensor.detach())
    return staged


def _in_place(tensor: torch.Tensor, begin, async_op: bool) -> Union[torch.Tensor, Work]:
    memory = stage(tensor)
    copied = memory.data_ptr() != tensor.data_ptr()
    work = Work(begin(memory), tensor, memory if copied else None)
    return work if async_op else work.wait()


def _require_tensor(tensor: torch.Tensor, what: str) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise invalid(f"{what} takes a tensor, not {type(tensor).__name__}")


def _require_float32(tensor: torch.Tensor, what: str) -> None:
    _require_tensor(tensor, what)
    if tensor.dtype != torch.float32:
        raise invalid(f"{what} takes float32, not {str(tensor.dtype).replace('torch.', '')}: convert it first")


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _mean(op: str) -> bool:
    if op not in ("sum", "mean"):
        raise invalid(f"unknown reduction '{op}'; known are sum, mean")
    return op == "mean"


def allreduce(tensor: torch.Tensor, op: str = "sum", *, wire: str = "fp32", group: Optional[Group] = None,
              async_op: bool = False) -> Union[torch.Tensor, Work]:
    """In place: every member ends with the sum (or mean) of all members' tensors, the same bits on all.

    ``tensor``: float32, any shape, the same number of elements on all. ``wire``: what travels between machines, "fp32"
    or "fp16". Raises ``InvalidArgument`` before anything is sent, ``Mismatch`` if members disagree.
    """
    _require_float32(tensor, "allreduce")
    mean, members = _mean(op), _members(group)
    core = current().core
    return _in_place(tensor, lambda t: core.allreduce(t.data_ptr(), t.numel(), mean, wire, members, t), async_op)


def broadcast(tensor: torch.Tensor, root: int = 0, *, group: Optional[Group] = None,
              async_op: bool = False) -> Union[torch.Tensor, Work]:
    """In place: every member ends with the bytes of ``root`` (a rank of the job). Any dtype and shape, the same number
    of bytes on all."""
    _require_tensor(tensor, "broadcast")
    members = _members(group)
    if root not in (range(current().world_size) if members is None else members):
        raise invalid(f"root {root} is not among the ranks that broadcast")
    core = current().core
    return _in_place(tensor, lambda t: core.broadcast(t.data_ptr(), _bytes(t), root, members, t), async_op)


def allgather(tensor: torch.Tensor, *, group: Optional[Group] = None,
              async_op: bool = False) -> Union[torch.Tensor, Work]:
    """Returns a tensor of shape [members, *tensor.shape]: those of all members in group order. Any dtype, the same
    shape on all."""
    _require_tensor(tensor, "allgather")
    members = _members(group)
    size = _size(group)
    me = current().rank if members is None else members.index(current().rank)
    result = tensor.new_empty((size, *tensor.shape))
    memory = stage(result)
    memory[me].copy_(tensor.detach())
    core = current().core.allgather(memory.data_ptr(), [_bytes(tensor)] * size, members, memory)
    work = Work(core, result, memory if memory.data_ptr() != result.data_ptr() else None)
    return work if async_op else work.wait()


class _ScatteredWork(Work):
    """Cuts this member's shard out of the sum."""

    def __init__(self, core, memory: torch.Tensor, begin: int, end: int, device: torch.device):
        super().__init__(core, memory)
        self._range = (begin, end)
        self._device = device

    def wait(self) -> torch.Tensor:
        summed = super().wait()
        return summed.view(-1)[self._range[0]:self._range[1]].clone().to(self._device)


def reduce_scatter(tensor: torch.Tensor, *, group: Optional[Group] = None,
                   async_op: bool = False) -> Union[torch.Tensor, Work]:
    """Sums the members' tensors and returns this member's shard of the sum, flat. ``tensor``: float32, the same number
    of elements on all; shards are contiguous and differ by one element at most, the first ones are the larger. The
    input is unchanged."""
    _require_float32(tensor, "reduce_scatter")
    members = _members(group)
    me = current().rank if members is None else members.index(current().rank)
    base, extra = divmod(tensor.numel(), _size(group))
    begin = base * me + min(me, extra)
    memory = stage(tensor).clone()
    core = current().core.reduce_scatter(memory.data_ptr(), memory.numel(), members, memory)
    work = _ScatteredWork(core, memory, begin, begin + base + (1 if me < extra else 0), tensor.device)
    return work if async_op else work.wait()


def barrier(*, group: Optional[Group] = None) -> None:
    """Returns when every member has called it."""
    current().core.barrier(_members(group)).wait()


class Residual:
    """What a rank has selected against and not sent yet, for one vector of ``elements``; see ``allreduce_sparse``."""

    def __init__(self, elements: int, *, group: Optional[Group] = None):
        self.elements = int(elements)
        self.group = group
        self._core = current().core.selector(self.elements, _members(group) is not None)


def allreduce_sparse(tensor: torch.Tensor, residual: Residual, density: float = 0.01, op: str = "sum", *,
                     value_dtype: str = "fp16", async_op: bool = False) -> Union[torch.Tensor, Work]:
    """In place: every member ends with the sum (or mean) of what members selected: the ``density`` of largest elements
    of tensor + residual. What is not selected stays in ``residual`` for the next call with it.

    Over the whole job selection is hierarchical (hitopk: dense inside machines, sparse between them); over
    ``residual.group`` every member selects by itself. ``tensor``: float32. ``density``: kept / all, in (0, 1].
    ``value_dtype``: "fp32", "fp16" or "bf16".
    """
    _require_float32(tensor, "allreduce_sparse")
    if not isinstance(residual, Residual):
        raise invalid("allreduce_sparse needs a virga.Residual: it holds what is not sent")
    if residual.elements != tensor.numel():
        raise invalid(f"a residual of {residual.elements} elements for a tensor of {tensor.numel()}")
    mean, members, core = _mean(op), _members(residual.group), current().core
    return _in_place(
        tensor,
        lambda t: core.allreduce_sparse(t.data_ptr(), t.numel(), mean, float(density), value_dtype, residual._core,
                                        members, (t, residual)), async_op)
