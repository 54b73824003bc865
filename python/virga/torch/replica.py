"""One rank's copy of a model that is trained by all ranks."""

import contextlib
import hashlib
import itertools
import json
import weakref
from typing import Any, Dict, Iterator, List, Optional, Tuple

import torch

from virga import _core
from virga.errors import Mismatch, from_core, invalid
from virga.torch.collectives import stage
from virga.torch.hooks import GradientHooks, at_end_of_backward, is_nested
from virga.torch.job import Job, current, strategy_options
from virga.torch.observe import Observer
from virga.torch.recall import RecallProbe, copy_of

_SYNC_BUFFERS = ("start", "epoch", "never")
_CHANNELS_LAST = (torch.channels_last, torch.channels_last_3d)
_open_replicas: "weakref.WeakSet[Replica]" = weakref.WeakSet()


class Replica:
    """Makes every rank train the same model: after ``backward()`` the gradients are the mean over all ranks.

        replica = virga.Replica(model, optimizer, strategy="hitopk", density=0.01)

    Nothing of the model or the optimizer is replaced: the loop stays as it is. Gradients leave in buckets while
    backward still runs; ``backward()`` returns when the mean is in ``.grad``, on all ranks the same bits, so whatever
    follows (clipping, a scaler, the step) is the same everywhere. Every pass outside ``no_sync()`` exchanges the
    ``.grad`` of every parameter; one without counts as zero.

    model: its trainable parameters may be of any floating dtype and on the CPU or one GPU; gradients travel as fp32.
    optimizer: checked to hold parameters of the model; ``join()`` steps it.
    strategy: see ``virga.strategies()``. density (kept / all, in (0, 1]), value_dtype ("fp32", "fp16", "bf16": what
        selected gradients travel as), error_feedback: for the sparse strategies.
    non_finite: when a gradient holds NaN or Inf on any rank, "error" raises ``NonFinite`` on all ranks before the
        update; "skip-step" sets all gradients to None, so that the optimizer does nothing; "keep" leaves them, on all
        ranks alike, for a loss scaler to find.
    bucket_bytes: how much is communicated at once, at least 1; rank 0's value counts.
    sync_buffers: buffers (BatchNorm's statistics) become rank 0's at the "start"; at every ``end_epoch()``, too; or
        "never".
    scaler: a GradScaler whose scale multiplies the loss. Gradients then travel unscaled, so that what waits in a
        residual keeps its meaning when the scale changes; implies non_finite="keep".

    The constructor makes parameters (and buffers) of all ranks those of rank 0. What is trained is settled by it: a
    parameter that is added or unfrozen later makes backward raise; one that is frozen later stays as it is. The replica
    lives, and keeps the model, until ``close()``. Raises ``Unavailable`` before
    ``virga.init()``, ``InvalidArgument`` for wrong options, ``Mismatch`` on every rank if models or options differ.
    """

    def __init__(self, model: torch.nn.Module, optimizer: Optional[torch.optim.Optimizer] = None, *,
                 strategy: str = "hitopk", density: float = 0.01, value_dtype: str = "fp16",
                 error_feedback: bool = True, non_finite: str = "error", bucket_bytes: int = 4 << 20,
                 sync_buffers: str = "start", scaler: Any = None):
        self._job = current()
        self._model = model
        self._optimizer = optimizer
        self._scaler = scaler
        if sync_buffers not in _SYNC_BUFFERS:
            raise invalid(f"unknown sync_buffers '{sync_buffers}'; known are {', '.join(_SYNC_BUFFERS)}")
        self._sync_buffers = sync_buffers
        _check_arguments(model, optimizer, bucket_bytes)
        self._parameters: List[Tuple[str, torch.nn.Parameter]] = [
            (name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
        _check(model, self._parameters, optimizer)
        self._known = {id(parameter) for _, parameter in self._parameters}
        _agree_on_model(self._job, model)
        self._job.require_equal("replica options", f"sync_buffers={sync_buffers} scaler={scaler is not None}")
        self._allocate()
        self._options = strategy_options(strategy, density, value_dtype, error_feedback)
        sizes = [(name, parameter.numel()) for name, parameter in self._parameters]
        non_finite = "keep" if scaler is not None else non_finite
        self._exchange = _core.GradientExchange(self._job.core, sizes, self._flat.data_ptr(),
                                                *self._options.values(), non_finite, int(bucket_bytes))
        self._job.add_user(self)
        self._skip = non_finite == "skip-step"
        self._steps = self._skipped = 0
        self._under_way = self._held = self._joining = False
        self._failure: Optional[str] = None
        self._recall_wanted = False
        self._probe: Optional[RecallProbe] = None
        self._recall: Dict[str, float] = {}
        self._active: Optional[Tuple[Any, torch.Tensor]] = None
        _broadcast(self._job, [parameter for parameter in model.parameters()])
        if sync_buffers != "never":
            _broadcast(self._job, list(model.buffers()))
        self._observer = Observer(self)  # from here on bytes and seconds are a step's
        self._hooks = GradientHooks([parameter for _, parameter in self._parameters], self._on_gradient)
        _open_replicas.add(self)

    def _allocate(self) -> None:
        total = sum(parameter.numel() for _, parameter in self._parameters)
        pinned = any(parameter.is_cuda for _, parameter in self._parameters)
        self._flat = torch.zeros(total, dtype=torch.float32, pin_memory=pinned)
        self._address = self._flat.data_ptr()  # which the library knows
        self._slices: List[torch.Tensor] = []
        begin = 0
        for _, parameter in self._parameters:
            self._slices.append(_shaped_like(parameter, self._flat[begin:begin + parameter.numel()]))
            begin += parameter.numel()

    # ---- a step ------------------------------------------------------------------------------------------------------

    def _on_gradient(self, index: int) -> None:
        if self._held or (self._exchange is None and not self._under_way):
            return
        if not self._under_way:
            self._begin_step()
        self._require_open("a backward pass")
        if self._exchange.is_ready(index):
            raise invalid(f"parameter '{self._parameters[index][0]}' got a second gradient in one backward pass; wrap "
                          "all passes but the last in replica.no_sync()")
        self._take(index)

    def _begin_step(self) -> None:
        if self._failure is not None:
            raise from_core("aborted", f"{self._failure}: the job has ended", self._job.rank)
        self._require_unchanged()
        if is_nested():
            raise invalid("a backward pass inside another one, as reentrant checkpointing makes: use torch.utils."
                          "checkpoint.checkpoint(..., use_reentrant=False)")
        self._under_way = True
        at_end_of_backward(self._finish, self._backward_failed)
        if self._recall_wanted:
            self._probe = RecallProbe(self._job, self._exchange, self._flat, self._slices)
        if self._joining:
            self._active = self._announce(True)

    def _require_unchanged(self) -> None:
        if self._flat.data_ptr() != self._address:
            raise invalid("the gradients have been moved to shared memory (share_memory(), or a queue between "
                          "processes took one): make the Replica afterwards, or send a clone()")
        if all(id(parameter) in self._known for parameter in self._model.parameters() if parameter.requires_grad):
            return
        new = [name for name, p in self._model.named_parameters() if p.requires_grad and id(p) not in self._known]
        raise invalid(f"parameter '{new[0]}' is trained now and was not when this Replica was made: close() it and "
                      "make a new one")

    def _backward_failed(self) -> None:
        """Backward has raised. Where nothing has left yet, the pass may be tried again; else other ranks count on the
        rest, and hear that it does not come."""
        self._under_way, self._probe = False, None
        announced, self._active = self._active is not None, None
        if self._exchange is None or (self._exchange.forget_step() and not announced):
            return
        self._failure = f"the backward pass of rank {self._job.rank} has failed in the middle of a step"
        self._job.core.fail_everywhere(self._failure)

    @torch.no_grad()
    def _take(self, index: int) -> None:
        """Brings a gradient into its slice, unscaled, and hands it over."""
        parameter, place = self._parameters[index][1], self._slices[index]
        gradient = parameter.grad
        if gradient is None or not parameter.requires_grad:
            place.zero_()
        elif not _is(gradient, place):
            place.copy_(gradient.to_dense() if gradient.is_sparse else gradient)
        if self._scaler is not None:
            place.mul_(1.0 / self._scaler.get_scale())
        if self._probe is not None:
            self._probe.take(index)
        self._exchange.ready(index)

    def _finish(self) -> None:
        """The end of backward: what has no gradient counts as zero; waits for the mean."""
        if not self._under_way:
            return
        self._under_way = False
        self._complete_step()
        if self._active is not None:
            work, _ = self._active
            work.wait()
            self._active = None

    def _complete_step(self) -> None:
        self._require_open("a backward pass")
        for index in range(len(self._parameters)):
            if not self._exchange.is_ready(index):
                self._take(index)
        self._observer.wait_begins()
        applied = self._exchange.finish()
        self._steps += 1
        if self._probe is not None:
            self._recall = self._probe.finish()
            self._observer.discount(self._probe.bytes_sent)
            self._probe, self._recall_wanted = None, False
        if applied or not self._skip:
            self._give_back()
        else:
            self._skipped += 1
            for _, parameter in self._parameters:
                parameter.grad = None
        self._observer.step_ends()

    @torch.no_grad()
    def _give_back(self) -> None:
        """The mean becomes the parameters' gradients."""
        for (_, parameter), place in zip(self._parameters, self._slices):
            if self._scaler is not None:
                place.mul_(self._scaler.get_scale())
            if parameter.requires_grad:
                _give(parameter, place)
            elif parameter.grad is not None and _is(parameter.grad, place):
                parameter.grad = None  # frozen since; what its residual still brings is not for the optimizer

    # ---- around steps ------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes inside only add to this rank's gradients; the next one outside sends the sum."""
        before, self._held = self._held, True
        try:
            yield
        finally:
            self._held = before

    @contextlib.contextmanager
    def join(self) -> Iterator[None]:
        """For ranks with different numbers of batches: a rank that leaves the block early goes on taking part in the
        others' steps with zero gradients (and steps the optimizer) until all have left. The mean stays one over all
        ranks. Afterwards parameters and the optimizer's state are those of the lowest rank that stepped last, whatever
        clipping did there that such steps lack. With a scaler, they are ``scaler.step(optimizer); scaler.update()``.

        Step schedulers of learning rates outside, once an epoch: inside, ranks step them unequally often, and
        ``end_epoch()`` raises ``Mismatch``. Raises ``InvalidArgument`` without an optimizer."""
        if self._optimizer is None:
            raise invalid("join() steps the optimizer of ranks that have run out of batches: give it to Replica")
        self._joining = True
        try:
            yield
            self._take_part_until_all_have_left()
        finally:
            self._joining = False

    def _announce(self, active: bool) -> Tuple[Any, torch.Tensor]:
        """Tells all ranks whether this one has a batch; the tensor then says it of every rank."""
        flags = torch.zeros(self._job.world_size)
        flags[self._job.rank] = float(active)
        work = self._job.core.allreduce(flags.data_ptr(), flags.numel(), "fp32", "sum", "fp32", None, flags)
        return work, flags

    def _take_part_until_all_have_left(self) -> None:
        last = 0
        while True:
            work, flags = self._announce(False)
            work.wait()
            if not bool(flags.any()):
                break
            last = int(torch.nonzero(flags)[0])
            self._step_with_nothing()
        root = int(max(self._job.core.exchange("join", str(last)), key=int))
        _broadcast(self._job, list(self._model.parameters()), root)
        _broadcast(self._job, _state_of(self._optimizer), root)

    def _step_with_nothing(self) -> None:
        for _, parameter in self._parameters:
            parameter.grad = None
        self._complete_step()
        if self._scaler is None:
            self._optimizer.step()
            return
        self._scaler.scale(torch.zeros((), device=self._parameters[0][1].device))  # it wants to have seen a loss
        self._scaler.step(self._optimizer)
        self._scaler.update()

    def set_strategy(self, strategy: str, *, density: float = 0.01, value_dtype: str = "fp16",
                     error_feedback: bool = True) -> None:
        """Changes the strategy between two steps, on all ranks. What the old one has not sent yet is added to the next
        step's gradient; ``stats()`` begins anew. Raises as the constructor does, and leaves the old strategy then."""
        self._require_between_steps("set_strategy()")
        options = strategy_options(strategy, density, value_dtype, error_feedback)
        self._exchange.set_strategy(*options.values())
        self._options, self._recall = options, {}
        self._observer.reset()

    def end_epoch(self) -> str:
        """Checks that all ranks hold the same parameters and that their optimizers have the same settings (raises
        ``Mismatch`` on every rank, naming ranks) and returns the parameters' SHA-256. With sync_buffers="epoch",
        buffers become those of rank 0."""
        self._require_between_steps("end_epoch()")
        digest = parameters_sha256(self._model)
        if self._optimizer is not None:
            self._job.require_equal("the optimizer's settings", _settings_of(self._optimizer))
        self._job.core.require_equal(f"parameters_sha256 after step {self._steps}", digest)
        if self._sync_buffers == "epoch":
            _broadcast(self._job, list(self._model.buffers()))
        return digest

    def state_dict(self) -> Dict[str, Any]:
        """What this rank's training needs beside model and optimizer to go on exactly: step, strategy, residuals. Every
        rank has its own; load it on the same rank of a job of the same shape."""
        self._require_between_steps("state_dict()")
        return {"version": 1, "steps": self._steps, "skipped_steps": self._skipped, "rank": self._job.rank,
                "world_size": self._job.world_size,
                "residuals": [copy_of(address, count) for _, address, count in self._exchange.residuals()],
                "carried": [(begin, copy_of(address, count)) for begin, address, count in self._exchange.carried()],
                **self._options}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Raises ``InvalidArgument`` unless the state is of this rank, strategy and model; nothing has changed then."""
        self._require_between_steps("load_state_dict()")
        expected = {"version": 1, "rank": self._job.rank, "world_size": self._job.world_size, **self._options}
        for key, value in expected.items():
            if state.get(key) != value:
                raise invalid(f"the state is one of {key} {state.get(key)!r}, this replica of {value!r}")
        if self._exchange.carried():
            raise invalid("load_state_dict() between set_strategy() and the next step, which what the old strategy has "
                          "not sent waits for: load the state first")
        carried = [(int(begin), stage(values.to(torch.float32))) for begin, values in state["carried"]]
        for begin, values in carried:
            if begin < 0 or begin + values.numel() > self._flat.numel() or not torch.isfinite(values).all():
                raise invalid(f"the state carries elements {begin} to {begin + values.numel()} over, which are not all "
                              f"finite or not all of this model's {self._flat.numel()}")
        residuals = [stage(residual.to(torch.float32)) for residual in state["residuals"]]
        self._exchange.set_residuals([(residual.data_ptr(), residual.numel()) for residual in residuals])
        for begin, values in carried:
            self._exchange.carry_over(begin, values.data_ptr(), values.numel())
        self._steps, self._skipped = int(state["steps"]), int(state["skipped_steps"])

    def stats(self, *, reset: bool = False) -> Dict[str, float]:
        """Means over the steps since the start (or the last reset): ``step_seconds``, ``compute_seconds``,
        ``wait_seconds`` (not hidden behind backward), ``select_seconds``, ``inter_host_bytes`` (payload that this rank
        sent to other machines) and ``inter_host_bytes_formula`` (the mean over machines); ``density``; and the counts
        ``steps`` and ``skipped_steps`` since the start. After ``measure_recall()`` also ``recall`` and
        ``density_reached`` of the step that was measured."""
        self._require_open("stats()")
        return {**self._observer.stats(reset), **self._recall}

    def measure_recall(self) -> None:
        """Measures the next step, on all ranks: which share of the largest elements, as an exact top-k of the dense
        mean with all residuals has them, reaches the ranks. Costs two dense allreduces then; see ``stats()``."""
        self._require_between_steps("measure_recall()")
        self._recall_wanted = True

    def trace(self, path: str, steps: int) -> None:
        """Writes a Chrome trace of the next ``steps`` steps of this rank to ``path`` (chrome://tracing, Perfetto):
        compute, wait, and the exchange of every bucket."""
        self._require_open("trace()")
        self._observer.trace(path, steps)

    def log_to(self, writer: Any, every: int = 50) -> None:
        """Adds the scalars of ``stats()`` to a TensorBoard SummaryWriter (or anything with ``add_scalar``) every so
        many steps."""
        self._observer.log_to(writer, every)

    def close(self) -> None:
        """Ends this replica: backward passes no longer communicate. In the middle of a step it ends the job."""
        hooks, self._hooks = getattr(self, "_hooks", None), None
        if hooks is not None:
            hooks.remove()
            _open_replicas.discard(self)
            self._observer.close()
        exchange, self._exchange = getattr(self, "_exchange", None), None
        if exchange is not None:
            exchange.close()

    def _require_open(self, what: str) -> None:
        if self._exchange is None:
            raise from_core("unavailable", f"{what}: this replica is closed", -1)

    def _require_between_steps(self, what: str) -> None:
        self._require_open(what)
        if self._under_way:
            raise invalid(f"{what} in the middle of a step")


def _give(parameter: torch.nn.Parameter, place: torch.Tensor) -> None:
    """Its gradient is the slice itself where type and device allow it."""
    if parameter.grad is not None and _is(parameter.grad, place):
        return
    if parameter.dtype == place.dtype and parameter.device == place.device:
        parameter.grad = place.detach()  # a tensor of its own on the same memory: module.to() changes its type
    elif parameter.grad is None or parameter.grad.is_sparse:
        parameter.grad = place.to(device=parameter.device, dtype=parameter.dtype)
    else:
        parameter.grad.copy_(place)


def parameters_sha256(model: torch.nn.Module) -> str:
    """Over the bytes of all parameters in order of registration, each row-major; as ``virga train`` prints it."""
    digest = hashlib.sha256()
    for parameter in model.parameters():
        memory = parameter.detach().cpu().contiguous().view(-1).view(torch.uint8)
        digest.update(memory.numpy().tobytes())
    return digest.hexdigest()


def _shaped_like(parameter: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
    """A view of flat memory with the parameter's shape and, where that is channels-last, its order in memory, too:
    autograd then accumulates into it as fast as into a gradient of its own."""
    if not parameter.is_contiguous() and any(parameter.is_contiguous(memory_format=order) for order in _CHANNELS_LAST):
        return memory.as_strided(parameter.shape, parameter.stride())
    return memory.view(parameter.shape)


def _is(gradient: torch.Tensor, place: torch.Tensor) -> bool:
    return (gradient.layout == place.layout and gradient.data_ptr() == place.data_ptr()
            and gradient.dtype == place.dtype)


def _check_arguments(model, optimizer, bucket_bytes) -> None:
    if isinstance(model, (torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel)):
        raise invalid(f"the model is in {type(model).__name__}, which sends gradients itself: give Replica its "
                      ".module, or keep DistributedDataParallel and use virga.attach()")
    if not isinstance(model, torch.nn.Module):
        raise invalid(f"a Replica is of a torch.nn.Module, not of {type(model).__name__}")
    if optimizer is not None and not hasattr(optimizer, "param_groups"):
        raise invalid(f"the second argument is the model's optimizer, not {type(optimizer).__name__}")
    if not isinstance(bucket_bytes, int) or bucket_bytes < 1:
        raise invalid(f"bucket_bytes is {bucket_bytes!r}; it must be a whole number of bytes, at least 1")


def _check(model, parameters, optimizer) -> None:
    if not parameters:
        raise invalid("the model has no trainable parameter")
    taken = set().union(*(other._known for other in _open_replicas))
    for name, parameter in parameters:
        if not parameter.dtype.is_floating_point:
            raise invalid(f"parameter '{name}' is {parameter.dtype}; only real floating point can be trained")
        if id(parameter) in taken:
            raise invalid(f"parameter '{name}' is another replica's already: close() that one, or put models that "
                          "share parameters into one torch.nn.ModuleList")
    if optimizer is None:
        return
    known = {id(parameter) for parameter in model.parameters()}
    foreign = [parameter for group in optimizer.param_groups for parameter in group["params"]
               if id(parameter) not in known]
    if foreign:
        raise invalid(f"the optimizer holds {len(foreign)} parameters that are not the model's (the first has shape "
                      f"{list(foreign[0].shape)}): make it from model.parameters() of the model that you give here")


def _settings_of(optimizer: torch.optim.Optimizer) -> str:
    """Learning rates, momenta and the like of all parameter groups."""
    groups = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
    return json.dumps(groups, sort_keys=True, default=str)


def _state_of(optimizer: torch.optim.Optimizer) -> List[torch.Tensor]:
    """Momenta and the like, in an order that all ranks share."""
    states = [optimizer.state.get(parameter, {}) for group in optimizer.param_groups for parameter in group["params"]]
    return [state[key] for state in states for key in sorted(state) if isinstance(state[key], torch.Tensor)]


def _layout(model: torch.nn.Module) -> List[str]:
    lines = [f"{name} {list(p.shape)} {p.dtype} {'trained' if p.requires_grad else 'frozen'}"
             f"{'' if p.is_contiguous() else f' strides {list(p.stride())}'}" for name, p in model.named_parameters()]
    return lines + [f"buffer {name} {list(b.shape)} {b.dtype}" for name, b in model.named_buffers()]


def _agree_on_model(job: Job, model: torch.nn.Module) -> None:
    lines = _layout(model)
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
    elements = sum(parameter.numel() for parameter in model.parameters())
    try:
        job.require_equal("model", f"{elements} elements in {len(lines)} tensors, layout {digest}")
    except Mismatch as error:  # on all ranks alike; say where they differ
        layouts = [text.split("\n") for text in job.core.exchange("model layout", "\n".join(lines))]
        raise from_core("ranks disagree", f"{error}; {_first_difference(layouts)}: build the same model on all ranks",
                        -1) from None


def _first_difference(layouts: List[List[str]]) -> str:
    for rank, lines in enumerate(layouts):
        for first, other in itertools.zip_longest(layouts[0], lines, fillvalue="nothing more"):
            if first != other:
                return f"rank {rank} has {other} where rank 0 has {first}"
    return "their layouts are equal"


def _broadcast(job: Job, tensors: List[torch.Tensor], root: int = 0) -> None:
    for tensor in tensors:
        memory = stage(tensor)
        job.core.broadcast(memory.data_ptr(), memory.numel() * memory.element_size(), root, None, memory).wait()
        if memory.data_ptr() != tensor.data_ptr():
            with torch.no_grad():
                tensor.copy_(memory)
