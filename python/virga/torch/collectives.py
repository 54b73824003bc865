"""Collectives on tensors. CPU tensors that are contiguous are worked on in place, without a copy; others (strided, or
on a GPU) go through a contiguous copy on the CPU, pinned where CUDA is there.

All ranks of a group call the same operations in the same order. ``async_op=True`` returns a ``Work`` at once; without
it the call waits. What is reduced is float32, float64, float16, bfloat16, int32 or int64; halves are added up in
float32.
"""

import operator
from typing import Any, List, Literal, Optional, Sequence, Union, overload

import torch

from virga import _core
from virga.errors import invalid
from virga.torch.job import current


class Group:
    """Some ranks of the job. ``ranks``: in ascending order, whatever order they were given in; it numbers the members.
    """

    def __init__(self, ranks: Sequence[int]):
        job = current()
        if not hasattr(ranks, "__iter__"):
            raise invalid(f"a group needs a list of ranks, not {type(ranks).__name__}")
        self.ranks: List[int] = sorted(_whole(rank, "a member of a group") for rank in ranks)
        if not self.ranks or len(set(self.ranks)) != len(self.ranks):
            raise invalid(f"a group needs ranks, each once; got {self.ranks}")
        if min(self.ranks) < 0 or max(self.ranks) >= job.world_size:
            raise invalid(f"a group of {self.ranks} in a job of {job.world_size} ranks")

    @property
    def size(self) -> int:
        """How many members there are."""
        return len(self.ranks)

    def __contains__(self, rank: int) -> bool:
        return rank in self.ranks


def new_group(ranks: Sequence[int]) -> Group:
    """A group of these ranks, which it sorts, as torch.distributed does: the lowest is member 0. Nothing is sent:
    members need not agree beforehand. Raises ``InvalidArgument`` for ranks that are not there or come twice."""
    return Group(ranks)


def _members(group: Optional[Group]) -> Optional[List[int]]:
    if group is not None and not isinstance(group, Group):
        raise invalid(f"group takes what virga.new_group() returns, not {type(group).__name__}")
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
    """Memory that the library can work on: the tensor itself, or a contiguous copy on the CPU. A tensor that is only
    marked as conjugated or negated has other bytes than values, so it is copied, too."""
    if tensor.device.type == "cpu":
        return tensor.detach().resolve_conj().resolve_neg().contiguous()
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
    if tensor.layout != torch.strided:
        raise invalid(f"{what} takes a dense tensor, not one of {tensor.layout}: give it tensor.to_dense()")


# What the library calls the types that it reduces.
_REDUCED = {torch.float32: "fp32", torch.float64: "fp64", torch.float16: "fp16", torch.bfloat16: "bf16",
            torch.int32: "int32", torch.int64: "int64"}


def _name(dtype: torch.dtype) -> str:
    return str(dtype).replace("torch.", "")


def _require_float32(tensor: torch.Tensor, what: str) -> None:
    _require_tensor(tensor, what)
    if tensor.dtype != torch.float32:
        raise invalid(f"{what} takes float32, not {_name(tensor.dtype)}: convert it first")


def _reduced(tensor: torch.Tensor, op: str, what: str) -> str:
    """The library's name of the tensor's type."""
    _require_tensor(tensor, what)
    if tensor.dtype not in _REDUCED:
        known = ", ".join(_name(dtype) for dtype in _REDUCED)
        raise invalid(f"{what} takes {known}, not {_name(tensor.dtype)}: convert it first")
    if not isinstance(op, str) or op not in ("sum", "mean", "min", "max"):
        raise invalid(f"unknown reduction '{op}'; known are sum, mean, min, max")
    if op == "mean" and not tensor.dtype.is_floating_point:
        raise invalid(f"{what} takes no mean of {_name(tensor.dtype)}: whole numbers have none")
    return _REDUCED[tensor.dtype]


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _layout(tensor: torch.Tensor) -> str:
    """What members must agree on beside the number of bytes."""
    return f"{tensor.dtype} {list(tensor.shape)}"


def _whole(value: Any, what: str) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise invalid(f"{what} is a whole number, not {value!r}") from None


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise invalid(f'{name} takes a text such as "fp16", not {value!r}')
    return value


def _number(value: Any, name: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise invalid(f"{name} takes a number, not {value!r}") from None


def _mean(op: str) -> bool:
    if not isinstance(op, str) or op not in ("sum", "mean"):
        raise invalid(f"unknown reduction '{op}'; known are sum, mean")
    return op == "mean"


@overload
def allreduce(tensor: torch.Tensor, op: str = "sum", *, wire: str = "fp32", group: Optional[Group] = None,
              async_op: Literal[False] = False) -> torch.Tensor: ...


@overload
def allreduce(tensor: torch.Tensor, op: str = "sum", *, wire: str = "fp32", group: Optional[Group] = None,
              async_op: Literal[True]) -> Work: ...


def allreduce(tensor: torch.Tensor, op: str = "sum", *, wire: str = "fp32", group: Optional[Group] = None,
              async_op: bool = False) -> Union[torch.Tensor, Work]:
    """In place: every member ends with the sum (``op``: "sum", "mean", "min" or "max") of all members' tensors, element
    by element, the same bits on all.

    ``tensor``: any shape, the same type and number of elements on all. ``wire``: what travels between machines, "fp32",
    or for sums and means of float32 "fp16" or "bf16". Raises ``InvalidArgument`` before
    anything is sent, ``Mismatch`` if members disagree.
    """
    dtype, wire, members = _reduced(tensor, op, "allreduce"), _text(wire, "wire"), _members(group)
    if wire != "fp32" and (dtype != "fp32" or op in ("min", "max")):
        raise invalid(f"only sums and means of float32 travel as {wire}, not {op} of {_name(tensor.dtype)}")
    core = current().core
    return _in_place(tensor, lambda t: core.allreduce(t.data_ptr(), t.numel(), dtype, op, wire, members, t), async_op)


@overload
def broadcast(tensor: torch.Tensor, root: int = 0, *, group: Optional[Group] = None,
              async_op: Literal[False] = False) -> torch.Tensor: ...


@overload
def broadcast(tensor: torch.Tensor, root: int = 0, *, group: Optional[Group] = None,
              async_op: Literal[True]) -> Work: ...


def broadcast(tensor: torch.Tensor, root: int = 0, *, group: Optional[Group] = None,
              async_op: bool = False) -> Union[torch.Tensor, Work]:
    """In place: every member ends with the values of ``root`` (a rank of the job). Any dtype and shape, the same dtype
    and number of elements on all.

    Raises ``InvalidArgument`` before anything is sent, ``Mismatch`` if members disagree. A root may have sent all it
    had before anybody could object; its next operation then raises what went wrong here.
    """
    _require_tensor(tensor, "broadcast")
    members, root = _members(group), _whole(root, "root")
    if root not in (range(current().world_size) if members is None else members):
        raise invalid(f"root {root} is not among the ranks that broadcast")
    core, dtype = current().core, str(tensor.dtype)
    return _in_place(tensor, lambda t: core.broadcast(t.data_ptr(), _bytes(t), root, members, t, dtype), async_op)


@overload
def allgather(tensor: torch.Tensor, *, group: Optional[Group] = None,
              async_op: Literal[False] = False) -> torch.Tensor: ...


@overload
def allgather(tensor: torch.Tensor, *, group: Optional[Group] = None, async_op: Literal[True]) -> Work: ...


def allgather(tensor: torch.Tensor, *, group: Optional[Group] = None,
              async_op: bool = False) -> Union[torch.Tensor, Work]:
    """Returns a tensor of shape [members, *tensor.shape]: those of all members in the order of their ranks. Any
    dtype and shape, the same on all. Raises ``InvalidArgument`` before anything is sent, ``Mismatch`` if members
    disagree."""
    _require_tensor(tensor, "allgather")
    members = _members(group)
    size = _size(group)
    me = current().rank if members is None else members.index(current().rank)
    result = tensor.new_empty((size, *tensor.shape))
    memory = stage(result)
    memory[me].copy_(tensor.detach())
    core = current().core.allgather(memory.data_ptr(), [_bytes(tensor)] * size, members, memory, _layout(tensor))
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


@overload
def reduce_scatter(tensor: torch.Tensor, op: str = "sum", *, group: Optional[Group] = None,
                   async_op: Literal[False] = False) -> torch.Tensor: ...


@overload
def reduce_scatter(tensor: torch.Tensor, op: str = "sum", *, group: Optional[Group] = None,
                   async_op: Literal[True]) -> Work: ...


def reduce_scatter(tensor: torch.Tensor, op: str = "sum", *, group: Optional[Group] = None,
                   async_op: bool = False) -> Union[torch.Tensor, Work]:
    """Sums the members' tensors and returns this member's shard of the sum, flat. ``op``, types and errors as in
    ``allreduce``; shards are contiguous and differ by one element at most, the first ones are the larger. The input is
    unchanged."""
    dtype = _reduced(tensor, op, "reduce_scatter")
    members = _members(group)
    me = current().rank if members is None else members.index(current().rank)
    base, extra = divmod(tensor.numel(), _size(group))
    begin = base * me + min(me, extra)
    memory = stage(tensor).clone()
    core = current().core.reduce_scatter(memory.data_ptr(), memory.numel(), dtype, op, members, memory)
    work = _ScatteredWork(core, memory, begin, begin + base + (1 if me < extra else 0), tensor.device)
    return work if async_op else work.wait()


def barrier(*, group: Optional[Group] = None) -> None:
    """Returns when every member has called it. Raises ``InvalidArgument`` on a rank that is no member,
    ``DeadlineExceeded`` naming a rank that did not come, ``Mismatch`` if another one runs something else."""
    current().core.barrier(_members(group)).wait()


class Residual:
    """What a rank has selected against and not sent yet, for one vector of ``elements``; see ``allreduce_sparse``.
    Raises ``InvalidArgument`` for a number of elements that is none, and on a rank that is no member of ``group``."""

    def __init__(self, elements: int, *, group: Optional[Group] = None):
        self.elements = _whole(elements, "the number of elements of a residual")
        if self.elements < 0:
            raise invalid(f"a residual of {self.elements} elements")
        self.group = group
        self._core = current().core.selector(self.elements, _members(group) is not None)


@overload
def allreduce_sparse(tensor: torch.Tensor, residual: Residual, density: float = 0.01, op: str = "sum", *,
                     value_dtype: str = "fp16", async_op: Literal[False] = False) -> torch.Tensor: ...


@overload
def allreduce_sparse(tensor: torch.Tensor, residual: Residual, density: float = 0.01, op: str = "sum", *,
                     value_dtype: str = "fp16", async_op: Literal[True]) -> Work: ...


def allreduce_sparse(tensor: torch.Tensor, residual: Residual, density: float = 0.01, op: str = "sum", *,
                     value_dtype: str = "fp16", async_op: bool = False) -> Union[torch.Tensor, Work]:
    """In place: every member ends with the sum (or mean) of what members selected: the ``density`` of largest elements
    of tensor + residual. What is not selected stays in ``residual`` for the next call with it.

    Over the whole job selection is hierarchical (hitopk: dense inside machines, sparse between them); over
    ``residual.group`` every member selects by itself. ``tensor``: float32. ``density``: kept / all, in (0, 1].
    ``value_dtype``: "fp32", "fp16" or "bf16". Raises ``InvalidArgument`` before anything is sent, ``Mismatch`` if
    members disagree.
    """
    _require_float32(tensor, "allreduce_sparse")
    if not isinstance(residual, Residual):
        raise invalid("allreduce_sparse needs a virga.Residual: it holds what is not sent")
    if residual.elements != tensor.numel():
        raise invalid(f"a residual of {residual.elements} elements for a tensor of {tensor.numel()}")
    density, value_dtype = _number(density, "density"), _text(value_dtype, "value_dtype")
    mean, members, core = _mean(op), _members(residual.group), current().core
    return _in_place(
        tensor,
        lambda t: core.allreduce_sparse(t.data_ptr(), t.numel(), mean, density, value_dtype, residual._core,
                                        members, (t, residual)), async_op)
