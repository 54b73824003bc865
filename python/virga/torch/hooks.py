"""How the package hears of gradients: torch's own hooks, nothing is replaced."""

import functools
import sys
from typing import Callable, List, Optional, Sequence, Set

import torch


class _End:
    """What torch calls at the end of a backward pass, and lets go of without a call when the pass has failed."""

    def __init__(self, finished: Callable[[], None], failed: Callable[[], None]):
        self._finished = finished
        self._failed: Optional[Callable[[], None]] = failed

    def __call__(self) -> None:
        self._failed = None
        self._finished()

    def __del__(self) -> None:
        if self._failed is not None:
            self._failed()


def at_end_of_backward(finished: Callable[[], None], failed: Callable[[], None]) -> None:
    """Calls ``finished`` when the backward pass that is running has ended, before ``backward()`` returns; ``failed``
    when it raises instead."""
    torch.autograd.Variable._execution_engine.queue_callback(_End(finished, failed))


def is_nested() -> bool:
    """Whether the backward pass that is running was begun inside another one, as reentrant checkpointing does. Its end
    is not the end of the step, and torch tells of no other."""
    passes = 0
    frame = sys._getframe()
    while frame is not None:
        passes += frame.f_code is torch.autograd.backward.__code__
        frame = frame.f_back
    return passes > 1


class GradientHooks:
    """Calls ``on_gradient(index)`` whenever backward has put a gradient into ``parameters[index].grad``.

    torch 2.1 and later have a hook on the tensor for it. Before, it is a hook on the autograd node that accumulates the
    gradient; a parameter gets a new node when its dtype or device changes, so that is looked at before a module's
    forward, once a step. It is heard by torch's hook for all modules: one of the model's own would be copied and
    pickled with the model.
    """

    def __init__(self, parameters: Sequence[torch.nn.Parameter], on_gradient: Callable[[int], None]):
        self._parameters = list(parameters)
        self._on_gradient = on_gradient
        self._handles: List = []
        self._on_tensors = hasattr(torch.Tensor, "register_post_accumulate_grad_hook")
        if self._on_tensors:
            for index, parameter in enumerate(self._parameters):
                hook = functools.partial(self._tensor_hook, index)
                self._handles.append(parameter.register_post_accumulate_grad_hook(hook))
            return
        count = len(self._parameters)
        self._index = {id(parameter): index for index, parameter in enumerate(self._parameters)}
        self._kinds: List = [None] * count  # dtype and device that the node is for
        self._nodes: List = [None] * count
        self._node_handles: List = [None] * count
        self._looked_at: Set[int] = set()  # ids of modules, since the last gradient
        self._handles.append(torch.nn.modules.module.register_module_forward_pre_hook(self._before_forward))
        for index in range(count):
            self._renew_node(index)

    def _tensor_hook(self, index: int, _parameter) -> None:
        self._on_gradient(index)

    def _node_hook(self, index: int, *_gradients) -> None:
        self._looked_at.clear()
        self._on_gradient(index)

    def _before_forward(self, module: torch.nn.Module, _inputs) -> None:
        if id(module) in self._looked_at or not torch.is_grad_enabled() or torch.jit.is_tracing():
            return
        for part in module.modules():  # a module may use its children's parameters without calling them
            self._looked_at.add(id(part))
            for parameter in part.parameters(recurse=False):
                index = self._index.get(id(parameter))
                if index is not None:
                    self._renew_node(index)

    def _renew_node(self, index: int) -> None:
        parameter = self._parameters[index]
        kind = parameter.dtype, parameter.device
        if kind == self._kinds[index] or not parameter.requires_grad:
            return
        with torch.enable_grad():
            node = parameter.view_as(parameter).grad_fn.next_functions[0][0]
        if self._node_handles[index] is not None:
            self._node_handles[index].remove()
        self._kinds[index] = kind
        self._nodes[index] = node  # it lives only as long as somebody holds it
        self._node_handles[index] = node.register_hook(functools.partial(self._node_hook, index))

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        if not self._on_tensors:
            for handle in self._node_handles:
                if handle is not None:
                    handle.remove()
