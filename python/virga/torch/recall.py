"""How good a sparse selection is: measured against an exact top-k of what dense communication would have given."""

from typing import Any, Dict, List

import torch

from virga import _core


def copy_of(address: int, count: int) -> torch.Tensor:
    """A copy of ``count`` floats of the library's."""
    values = torch.empty(count, dtype=torch.float32)
    _core.copy_floats(address, values.data_ptr(), count)
    return values


class RecallProbe:
    """Watches one step of a replica. Costs a copy of the gradients and two dense allreduces of them; ``bytes_sent`` is
    what those have sent to other hosts."""

    def __init__(self, job: Any, exchange: Any, flat: torch.Tensor, slices: List[torch.Tensor]):
        self.bytes_sent = 0
        self._job = job
        self._exchange = exchange
        self._flat = flat
        self._slices = slices
        self._local = torch.zeros_like(flat)
        self._residual = torch.zeros_like(flat)
        for begin, address, count in exchange.residuals():
            self._residual[begin:begin + count] += copy_of(address, count)

    def take(self, index: int) -> None:
        """A parameter's gradient is about to be exchanged."""
        place = self._slices[index]
        begin, end = place.storage_offset(), place.storage_offset() + place.numel()
        self._local[begin:end] = self._flat[begin:end]

    def finish(self) -> Dict[str, float]:
        """After the exchange, on all ranks. ``recall``: the share of the k largest elements of (mean gradient + all
        residuals), k by density and bucket, that reached the ranks in this step. ``density_reached``: the share of
        elements that are not zero in what reached them."""
        bytes_before = self._job.inter_host_bytes
        self._allreduce(self._local, True)
        self._allreduce(self._residual, False)
        self.bytes_sent = self._job.inter_host_bytes - bytes_before
        wanted = (self._local + self._residual).abs_()
        reached = self._flat != 0
        hits = asked = begin = 0
        for elements in reversed([bucket[2] for bucket in self._exchange.bucket_times()]):
            k = _core.k_for_density(elements, self._exchange.density)
            exact = wanted[begin:begin + elements].topk(k).indices
            hits += int(reached[begin:begin + elements][exact].sum())
            asked += k
            begin += elements
        if asked == 0:  # nothing but empty parameters: nothing is missing
            return {"recall": 1.0, "density_reached": 0.0}
        return {"recall": hits / asked, "density_reached": float(reached.sum()) / self._flat.numel()}

    def _allreduce(self, tensor: torch.Tensor, mean: bool) -> None:
        op = "mean" if mean else "sum"
        self._job.core.allreduce(tensor.data_ptr(), tensor.numel(), "fp32", op, "fp32", None, tensor).wait()
