from __future__ import annotations

import json

import pytest

from compiler import target as targets
from compiler.cli import kernel_bench, peak
from compiler.cli.app import app
from compiler.cli.kernel_times import KernelTime


@pytest.fixture(autouse=True)
def _threads(monkeypatch):
    monkeypatch.setenv("TVM_NUM_THREADS", "1")  # the command sets it; this puts it back


@pytest.fixture
def machine(monkeypatch):
    monkeypatch.setattr(kernel_bench, "peak_gflops", lambda target, threads: 100.0)
    monkeypatch.setattr(kernel_bench, "memory_gbytes", lambda target, threads: 10.0)


def kernel(gflops, gbytes):
    return KernelTime("k", ["conv2d"], "rule", "topi:fallback", [], 1, 1.0, 1.0, gflops, gbytes)


def test_every_anchored_kernel_is_held_against_the_machine(cli, model, machine):
    result = cli.invoke(app, ["kernels", str(model), str(model), "--repeat", "2", "--json"])
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert (found["peak_gflops"], found["memory_gbytes"]) == (100.0, 10.0)
    operators = [" ".join(each["kernel"]["operators"]) for each in found["workloads"]]
    assert len(operators) == 2
    assert any("conv2d" in text for text in operators)
    assert any("nn.dense" in text for text in operators)
    for each in found["workloads"]:
        assert each["models"] == [model.name]
        assert each["of_peak"] == pytest.approx(each["kernel"]["gflops"] / 100)
        assert each["of_memory"] == pytest.approx(each["kernel"]["gbytes"] / 10)


def test_the_table_names_the_machine_and_the_workloads(cli, model, machine):
    result = cli.invoke(app, ["kernels", str(model), "--repeat", "1"])
    assert result.exit_code == 0, result.stderr
    assert "100 GFLOP/s, 10.0 GB/s" in result.stdout
    assert "conv2d" in result.stdout


def test_what_would_take_longer_alone_bounds_a_kernel():
    assert kernel_bench.judge(kernel(50, 1), "m", 100, 10).bound == "compute"
    assert kernel_bench.judge(kernel(5, 5), "m", 100, 10).bound == "memory"


def test_the_workload_with_the_most_time_to_win_comes_first():
    good = kernel_bench.judge(kernel(90, 1), "m", 100, 10)
    bad = kernel_bench.judge(kernel(10, 1), "m", 100, 10)
    from_cache = kernel_bench.judge(kernel(10, 30), "m", 100, 10)
    ordered = sorted([good, from_cache, bad], key=kernel_bench._to_win)
    assert ordered == [from_cache, good, bad]


def test_wider_vectors_have_no_lower_peak(monkeypatch):
    monkeypatch.setattr(peak, "_STEPS", 20_000)
    narrow = peak.peak_gflops(targets.parse("llvm -mcpu=x86-64"), 1)
    wide = peak.peak_gflops(targets.parse("llvm -mcpu=x86-64-v3"), 1)
    # A core whose units are half as wide as its vectors (Zen 1) gains nothing.
    assert 0.1 < narrow < 1.5 * wide < 10_000


def test_memory_is_read_at_a_finite_rate(monkeypatch):
    monkeypatch.setattr(peak, "_READ_BYTES", 1 << 24)
    assert 0.1 < peak.memory_gbytes(targets.parse("llvm"), 1) < 10_000
