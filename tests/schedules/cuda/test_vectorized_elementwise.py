"""Threads that compute vectors of neighboring results."""

import re

import pytest
from tvm import te, topi
from tvm.target import Target

from schedules import rules
from schedules.cuda import vectorized_elementwise
from tests.ptx import ptxas
from tests.ptx.scheduled import Scheduled
from tests.schedules.cuda.checking import tensor
from tests.schedules.cuda.families import Family

TARGET = Target({"kind": "cuda", "arch": "sm_90"}, host="llvm")
needs_nvcc = pytest.mark.skipif(ptxas.NVCC is None, reason="needs nvcc")


def scaled(dtype):
    x, b = tensor(7, 36, dtype=dtype), tensor(36, dtype=dtype, name="b")
    return [x, b, topi.tanh(topi.add(x, b) * te.const(0.5, dtype))]


def depthwise(dtype, channels=16):
    x, w = tensor(1, 9, 7, channels, dtype=dtype), tensor(3, 3, channels, 1, dtype=dtype, name="w")
    return [x, w, topi.nn.relu(topi.nn.depthwise_conv2d_nhwc(x, w, (2, 1), 1, 1))]


def mean(dtype):
    x = tensor(1, 9, 9, 16, dtype=dtype)
    return [x, topi.nn.pool2d(x, (3, 3), (2, 2), (1, 1), (0, 0, 0, 0), "avg", layout="NHWC")]


@needs_nvcc
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("tensors", "loads"), [(scaled, 2), (depthwise, 18)])
def test_memory_is_read_and_written_in_vectors(tensors, loads, dtype, monkeypatch):
    monkeypatch.setattr(vectorized_elementwise, "fewest", lambda _: 0)
    tolerance = {"float32": 1e-5, "float16": 5e-3, "bfloat16": 5e-2}[dtype]
    family = Family("vectors", lambda: tensors(dtype), tolerance)
    _, func, target = family.scheduled()
    scheduled = Scheduled(func, target)
    assert len(re.findall(r"ld\.global(?:\.nc)?\.v4", scheduled.ptx)) == loads
    assert len(re.findall(r"st\.global\.v4", scheduled.ptx)) == 1
    inputs = family.inputs()
    outcome = scheduled.interpret(inputs)
    assert [str(problem) for problem in outcome.problems[:5]] == []
    family.check(outcome.outputs[0], inputs)


@needs_nvcc
def test_a_mean_of_windows_is_right(monkeypatch):
    monkeypatch.setattr(vectorized_elementwise, "fewest", lambda _: 0)
    family = Family("mean", lambda: mean("float32"))
    _, func, target = family.scheduled()
    outcome = Scheduled(func, target).interpret(family.inputs())
    assert outcome.problems == []
    family.check(outcome.outputs[0], family.inputs())


@pytest.mark.parametrize(
    "tensors", [lambda: depthwise("float32", channels=6), lambda: scaled("float32")]
)
def test_no_vectors_where_they_do_not_fit_or_threads_would_be_few(tensors):
    """Six channels, and a result for which there are not threads enough as it is."""
    scheduled = rules.schedule(te.create_prim_func(tensors()), TARGET)
    assert "vectorized" not in scheduled.func.script()
