"""How the package hears of gradients: torch's own hooks, nothing is replaced."""

import functools
from typing import Callable, List, Sequence

import torch


def at_end_of_backward(callback: Callable[[], None]) -> None:
    """Calls it when the backward pass that is running has ended, before ``backward()`` returns."""
    torch.autograd.Variable._execution_engine.queue_callback(callback)


class GradientHooks:
    """Calls ``on_gradient(index)`` whenever backward has put a gradient into ``parameters[index].grad``.

    torch 2.1 and later have a hook on the tensor for it. Before, it is a hook on the autograd node that accumulates the
    gradient; a parameter gets a new node when its dtype or device changes, so that nodes are looked at before forward.
    That is heard by torch's hook for all modules: one of the model's own would be copied and pickled with the model.
    """

    def __init__(self, model: torch.nn.Module, parameters: Sequence[torch.nn.Parameter],
                 on_gradient: Callable[[int], None]):
        self._parameters = list(parameters)
        self._on_gradient = on_gradient
        self._handles: List = []
        self._on_tensors = hasattr(torch.Tensor, "register_post_accumulate_grad_hook")
        if self._on_tensors:
            for index, parameter in enumerate(self._parameters):
                hook = functools.partial(self._tensor_hook, index)
                self._handles.append(parameter.register_post_accumulate_grad_hook(hook))
            return
        self._nodes = [None] * len(self._parameters)
        self._node_handles = [None] * len(self._parameters)
        self._model = model
        self._handles.append(torch.nn.modules.module.register_module_forward_pre_hook(self._before_forward))
        self._renew_nodes()

    def _tensor_hook(self, index: int, _parameter) -> None:
        self._on_gradient(index)

    def _node_hook(self, index: int, *_gradients) -> None:
        self._on_gradient(index)

    def _before_forward(self, module, _inputs) -> None:
        if module is self._model:
            self._renew_nodes()

    def _renew_nodes(self) -> None:
        if not torch.is_grad_enabled():
            return
        for index, parameter in enumerate(self._parameters):
            if not parameter.requires_grad:
                continue
            node = parameter.view_as(parameter).grad_fn.next_functions[0][0]
            if node is self._nodes[index]:
                continue
            if self._node_handles[index] is not None:
                self._node_handles[index].remove()
            self._nodes[index] = node  # it lives only as long as somebody holds it
            self._node_handles[index] = node.register_hook(functools.partial(self._node_hook, index))

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        if not self._on_tensors:
            for handle in self._node_handles:
                if handle is not None:
                    handle.remove()
