"""A communication hook for models that are in DistributedDataParallel already."""

import queue
import threading
import weakref
from typing import Any, Dict, List, Set, Tuple

import torch
import torch.distributed

from virga import _core
from virga.errors import from_core, invalid
from virga.torch.job import Job, current, strategy_options
from virga.torch.recall import copy_of


class Attached:
    """What ``attach()`` returns: the hook's state. Each of DDP's buckets has an exchange of its own. When DDP rebuilds
    its buckets (once, after the first step), what their residuals hold follows the parameters."""

    def __init__(self, ddp: torch.nn.Module, options: Dict[str, Any]):
        self._job = current()
        self._options = options
        self._names = {parameter: name for name, parameter in ddp.module.named_parameters()}
        # By the ids of a bucket's parameters, which DDP may put together anew.
        self._exchanges: Dict[Tuple[int, ...], Tuple[List[torch.Tensor], torch.Tensor, Any]] = {}
        self._carried: Dict[torch.Tensor, torch.Tensor] = {}  # by parameter: residuals of buckets that are no more
        self._finishing: "queue.Queue" = queue.Queue()
        self._thread = threading.Thread(target=_finish_buckets, args=(self._finishing,), name="virga-ddp", daemon=True)
        self._thread.start()
        weakref.finalize(self, self._finishing.put, None)
        self._job.add_user(self)

    def hook(self, _state: Any, bucket: torch.distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Starts a bucket's exchange. DDP calls it in the order of bucket indexes, on all ranks alike, and that is the
        order in which messages get their numbers, whatever becomes ready when."""
        future: "torch.futures.Future[torch.Tensor]" = torch.futures.Future()
        memory, exchange = self._exchange_of(bucket)
        gradient = bucket.buffer()
        memory.copy_(gradient)
        exchange.ready(0)
        self._finishing.put((exchange, memory, gradient, future))
        return future

    def _exchange_of(self, bucket: Any) -> Tuple[torch.Tensor, Any]:
        parameters = list(bucket.parameters())
        key = tuple(id(parameter) for parameter in parameters)
        if key in self._exchanges:
            return self._exchanges[key][1:]
        self._give_up(set(key))
        memory = torch.zeros(bucket.buffer().numel(), dtype=torch.float32)
        names = "+".join(self._names[parameter] for parameter in parameters)
        exchange = _exchange(self._job, names, memory, self._options)
        self._exchanges[key] = (parameters, memory, exchange)
        self._take_over(parameters, exchange)
        return memory, exchange

    def _give_up(self, parameters: Set[int]) -> None:
        """DDP has rebuilt its buckets: keeps, by parameter, what those have not sent that held one of these. They are
        not under way: the step that they were of has ended, and each parameter is in one bucket of this one."""
        for key in [key for key in self._exchanges if not parameters.isdisjoint(key)]:
            members, _, exchange = self._exchanges.pop(key)
            for begin, address, count in exchange.residuals() + exchange.carried():
                self._keep(members, begin, copy_of(address, count))
            exchange.close()

    def _keep(self, parameters: List[torch.Tensor], begin: int, residual: torch.Tensor) -> None:
        offset = 0
        for parameter in parameters:
            first, last = max(offset, begin), min(offset + parameter.numel(), begin + residual.numel())
            if first < last:
                kept = self._carried.setdefault(parameter, torch.zeros(parameter.numel()))
                kept[first - offset:last - offset] += residual[first - begin:last - begin]
            offset += parameter.numel()

    def _take_over(self, parameters: List[torch.Tensor], exchange: Any) -> None:
        offset = 0
        for parameter in parameters:
            kept = self._carried.pop(parameter, None)
            if kept is not None:
                exchange.carry_over(offset, kept.data_ptr(), kept.numel())
            offset += parameter.numel()

    def close(self) -> None:
        """Called when the job ends."""
        if self._thread.is_alive():
            self._finishing.put(None)
            self._thread.join()
        for _, _, exchange in self._exchanges.values():
            exchange.close()
        self._exchanges.clear()


def _finish_buckets(finishing: "queue.Queue") -> None:
    """One thread waits for the exchanges in the order in which they began, until there are no more."""
    while True:
        item = finishing.get()
        if item is None:
            return
        exchange, memory, gradient, future = item
        try:
            exchange.finish()
            gradient.copy_(memory)
            future.set_result(gradient)
        except Exception as error:  # raised by backward() on the training thread
            future.set_exception(error)
        del item, exchange, memory, gradient, future  # else a model that is gone lives on here


def attach(ddp: torch.nn.Module, *, strategy: str = "hitopk", density: float = 0.01, value_dtype: str = "fp16",
           error_feedback: bool = True) -> Attached:
    """Registers a communication hook on a ``DistributedDataParallel`` model, so that its gradients travel by a strategy
    of Virga instead of its process group's allreduce. Options as in ``Replica``.

    Call it once, before the first backward pass, on all ranks. Gradients must be float32 on the CPU or are staged
    through it. NaN and Inf reach ``.grad`` on all ranks. DDP waits for messages without listening to Ctrl-C: it is
    heard when the wait ends, at the latest after the operation timeout. Raises ``Unavailable`` before ``virga.init()``,
    ``InvalidArgument`` for a model that is not in DDP, for ranks of DDP that are not those of the job, and for wrong
    options.
    """
    if not isinstance(ddp, torch.nn.parallel.DistributedDataParallel):
        raise invalid(f"attach() takes a DistributedDataParallel model, not {type(ddp).__name__}; for a plain module "
                      "there is virga.Replica")
    job = current()
    group = ddp.process_group
    theirs = (torch.distributed.get_rank(group), torch.distributed.get_world_size(group))
    if theirs != (job.rank, job.world_size):
        raise invalid(f"DDP says rank {theirs[0]} of {theirs[1]}, the job rank {job.rank} of {job.world_size}: both "
                      "must be all ranks of one job")
    options = strategy_options(strategy, density, value_dtype, error_feedback)
    _try(job, options)
    attached = Attached(ddp, options)
    ddp.register_comm_hook(None, attached.hook)
    return attached


def _try(job: Job, options: Dict[str, Any]) -> None:
    """Raises here, not in the first backward pass, what is wrong with the options or differs between ranks."""
    memory = torch.zeros(1)
    _exchange(job, "attach()", memory, options).close()


def _exchange(job: Job, names: str, memory: torch.Tensor, options: Dict[str, Any]) -> "_core.GradientExchange":
    """For one bucket, whose gradient stands in ``memory``."""
    return _core.GradientExchange(job.core, [(names, memory.numel())], memory.data_ptr(), *options.values(), "keep",
                                  max(4 * memory.numel(), 4))
