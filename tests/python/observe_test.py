"""What a replica tells: means, a trace, scalars, recall."""

import json
import logging
import os
import pathlib
import shutil
import sys

import pytest
import torch
import virga.torch as virga
from models import batch, loss, mlp
from ranks import on


def train(model, steps, rank):
    for step in range(steps):
        model.zero_grad()
        loss(model, batch(rank, step)).backward()


@on(ranks=2)
def test_times_add_up(job):
    model = mlp()
    replica = virga.Replica(model, strategy="topk", density=0.1)
    train(model, 5, job.rank)
    stats = replica.stats()
    assert stats["steps"] == 5 and stats["skipped_steps"] == 0
    assert 0 < stats["select_seconds"] < stats["step_seconds"]
    assert stats["compute_seconds"] > 0 and stats["wait_seconds"] > 0
    assert stats["step_seconds"] == pytest.approx(stats["compute_seconds"] + stats["wait_seconds"])
    assert stats["density"] == 0.1
    replica.stats(reset=True)
    assert replica.stats()["step_seconds"] == 0 and replica.stats()["steps"] == 5
    replica.close()


@on(ranks=2)
def test_dense_strategies_select_nothing(job):
    model = mlp()
    replica = virga.Replica(model, strategy="allreduce")
    train(model, 2, job.rank)
    assert replica.stats()["select_seconds"] == 0 and replica.stats()["density"] == 1
    replica.close()


@on(ranks=4, hosts=2)
def test_bytes_between_hosts_are_the_formula(job):
    for strategy in virga.strategies():
        torch.manual_seed(1)
        model = mlp(6, 300, 3)
        replica = virga.Replica(model, strategy=strategy, density=0.01)
        replica.stats(reset=True)
        train(model, 4, job.rank)
        stats = replica.stats()
        host = virga.new_group([2 * job.host, 2 * job.host + 1])
        sent = virga.allreduce(torch.tensor([stats["inter_host_bytes"]]), group=host).item()
        assert sent == pytest.approx(stats["inter_host_bytes_formula"], rel=0.02), strategy
        assert sent > 0
        replica.close()


def events_by_lane(path):
    with open(path, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    lanes = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    spans = {}
    for event in events:
        if event["ph"] == "X":
            spans.setdefault((lanes[event["tid"]], event["name"]), []).append((event["ts"], event["ts"] + event["dur"]))
    return spans


@on(ranks=2)
def test_a_trace_has_a_lane_for_every_bucket(job):
    for strategy, kinds in (("hitopk", {"exchange", "select", "send and add"}), ("allreduce", {"exchange"})):
        model = mlp()
        replica = virga.Replica(model, strategy=strategy, density=0.1, bucket_bytes=100)
        train(model, 1, job.rank)
        path = f"{sys.argv[1]}/trace.{job.rank}.json"
        replica.trace(path, steps=3)
        train(model, 4, job.rank)
        spans = events_by_lane(path)
        lanes = {lane for lane, _ in spans}
        buckets = {lane for lane in lanes if lane.startswith("bucket")}
        assert len(buckets) >= 2 and lanes == buckets | {"training"}
        expected = {(lane, kind) for lane in buckets for kind in kinds}
        expected |= {("training", "compute"), ("training", "wait")}
        assert set(spans) == expected and all(len(of) == 3 for of in spans.values())
        for step in range(3):
            compute, wait = spans["training", "compute"][step], spans["training", "wait"][step]
            assert compute[0] <= compute[1] == pytest.approx(wait[0], abs=1e-3) and wait[0] <= wait[1]
            for lane in buckets:
                begin, end = spans[lane, "exchange"][step]
                assert compute[0] <= begin <= end <= wait[1] + 1, (lane, compute, wait, begin, end)
                for kind in kinds:
                    inner = spans[lane, kind][step]
                    assert begin - 1 <= inner[0] <= inner[1] <= end + 1
        replica.close()


class Writer:
    def __init__(self):
        self.scalars = []

    def add_scalar(self, name, value, step):
        self.scalars.append((name, value, step))


@on(ranks=2)
def test_scalars_go_to_a_writer_every_so_many_steps(job):
    model, writer = mlp(), Writer()
    replica = virga.Replica(model, strategy="topk", density=0.1)
    replica.log_to(writer, every=2)
    train(model, 5, job.rank)
    assert sorted({step for _, _, step in writer.scalars}) == [2, 4]
    names = {name for name, _, step in writer.scalars if step == 4}
    assert {"virga/step_seconds", "virga/wait_seconds", "virga/density"} <= names
    assert all(isinstance(value, (int, float)) for _, value, _ in writer.scalars)
    replica.close()


@on(ranks=2)
def test_what_can_not_be_written_is_said_at_the_call(job):
    model = mlp()
    replica = virga.Replica(model, strategy="allreduce")
    path = f"{sys.argv[1]}/refused.{job.rank}.json"
    for call, message in ((lambda: replica.trace(path, 0), "steps is 0"), (lambda: replica.trace(path, "3"), "'3'"),
                          (lambda: replica.trace(None, 3), "path of a file, not NoneType"),
                          (lambda: replica.log_to(path), "add_scalar.*not str"),
                          (lambda: replica.log_to(Writer(), every=0), "every is 0")):
        with pytest.raises(virga.InvalidArgument, match=message):
            call()
    assert not os.path.exists(path)
    with pytest.raises(FileNotFoundError):
        replica.trace(f"{sys.argv[1]}/no/such/folder/trace.json", 1)
    train(model, 2, job.rank)
    replica.log_to(None)  # logs no more
    replica.close()


@on(ranks=2)
def test_a_trace_that_ends_early_has_the_steps_there_were(job):
    model = mlp()
    replica = virga.Replica(model, strategy="allreduce")
    paths = [pathlib.Path(sys.argv[1]) / f"early.{job.rank}.{number}.json" for number in range(2)]
    replica.trace(paths[0], steps=10)
    train(model, 2, job.rank)
    replica.trace(paths[1], steps=10)  # the first ends here
    train(model, 3, job.rank)
    replica.close()
    replica.close()
    assert [len(events_by_lane(path)["training", "wait"]) for path in paths] == [2, 3]


class BrokenWriter:
    def add_scalar(self, _name, _value, _step):
        raise OSError("the disk is full")


@on(ranks=2)
def test_training_goes_on_if_a_file_or_a_writer_fails(job):
    model = mlp()
    replica = virga.Replica(model, strategy="allreduce")
    folder = pathlib.Path(sys.argv[1]) / f"gone.{job.rank}"
    folder.mkdir()
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logging.getLogger("virga").addHandler(handler)
    replica.log_to(BrokenWriter(), every=2)
    replica.trace(folder / "trace.json", steps=2)
    shutil.rmtree(folder)
    replica.stats(reset=True)
    train(model, 4, job.rank)
    logging.getLogger("virga").removeHandler(handler)
    assert len(lines) == 3 and "trace" in lines[0], lines
    assert lines[1:] == [f"scalars of step {step} were not written: OSError: the disk is full" for step in (2, 4)]
    stats = replica.stats()
    assert stats["steps"] == 4 and all(parameter.grad is not None for parameter in model.parameters())
    assert stats["step_seconds"] == pytest.approx(stats["compute_seconds"] + stats["wait_seconds"])
    replica.close()


@on(ranks=4, hosts=2)
def test_bytes_of_a_measurement_are_told_apart(job):
    model = mlp(6, 300, 3)
    replica = virga.Replica(model, strategy="allreduce")
    train(model, 1, job.rank)
    replica.stats(reset=True)
    train(model, 1, job.rank)
    expected = replica.stats(reset=True)["inter_host_bytes"]
    before = job.inter_host_bytes
    replica.measure_recall()
    train(model, 1, job.rank)
    assert job.inter_host_bytes - before == 3 * expected > 0, "the gradients, and two dense allreduces"
    assert replica.stats()["inter_host_bytes"] == expected
    replica.close()


@on(ranks=2)
def test_means_begin_anew_with_another_strategy(job):
    model = mlp()
    replica = virga.Replica(model, strategy="topk", density=0.1)
    train(model, 2, job.rank)
    replica.set_strategy("topk", density=0.2)
    stats = replica.stats()
    assert stats["step_seconds"] == stats["wait_seconds"] == stats["select_seconds"] == 0 and stats["steps"] == 2
    assert stats["inter_host_bytes"] == 0
    replica.close()


@on(ranks=2)
def test_recall_of_empty_parameters(job):
    for strategy in ("topk", "hitopk", "allreduce"):
        model = torch.nn.Linear(0, 3, bias=False)
        replica = virga.Replica(model, strategy=strategy, density=0.1)
        replica.measure_recall()
        model(torch.zeros(2, 0)).sum().backward()
        assert replica.stats()["recall"] == 1 and replica.stats()["density_reached"] == 0
        replica.close()


@on(ranks=2)
def test_recall_against_an_exact_selection(job):
    for memory_format in (torch.contiguous_format, torch.channels_last):
        for strategy, density in (("allreduce", 0.1), ("hitopk", 0.1), ("topk", 0.1), ("topk", 1.0)):
            torch.manual_seed(1)
            model = torch.nn.Conv2d(3, 8, 3).to(memory_format=memory_format)
            replica = virga.Replica(model, strategy=strategy, density=density, value_dtype="fp32")
            for step in range(3):
                model.zero_grad()
                if step == 2:
                    replica.measure_recall()
                x = torch.randn(2, 3, 5, 5, generator=torch.Generator().manual_seed(10 * step + job.rank))
                (model(x) ** 3).mean().backward()
            stats = replica.stats()
            if strategy == "allreduce" or density == 1.0:
                assert stats["recall"] == 1 and stats["density_reached"] > 0.99
            elif strategy == "hitopk":  # one host: every owner's exact selection in its half
                assert stats["recall"] > 0.6 and stats["density_reached"] == pytest.approx(0.1, abs=0.01), stats
            else:
                assert 0.2 < stats["recall"] <= 1 and 0.1 <= stats["density_reached"] <= 0.2
            replica.close()
