"""Kernels are timed with constants that come from as far as in their network."""

import numpy as np
import pytest
import tvm
from tvm import te

from compiler.measure import timing
from compiler.measure.candidate import ArgInfo, MeasureErrorNo, RunOptions

ROWS, COLUMNS, DEPTH = 4, 32, 16
ARGS = (
    ArgInfo((ROWS, DEPTH), "float32"),
    ArgInfo((COLUMNS, DEPTH), "float32"),
    ArgInfo((COLUMNS,), "float32"),
    ArgInfo((ROWS, COLUMNS), "float32"),  # added to the product, as a residual is
    ArgInfo((ROWS, COLUMNS), "float32"),
)
CONSTANTS = 4 * COLUMNS * (DEPTH + 1)


class Dense:
    """A candidate as `time_kernel` needs it."""

    device = "cpu"

    def reference(self):
        return None


class Recorded:
    """A library whose kernel notes with which tensors it is called."""

    def __init__(self, library):
        self.library, self.calls, self.evaluated = library, [], 0

    def get_function(self, name):
        kernel = self.library[name]

        def run(*tensors):
            self.calls.append([np.from_dlpack(t).ctypes.data for t in tensors])
            kernel(*tensors)

        return run

    def time_evaluator(self, *args, **kwargs):
        self.evaluated += 1
        return self.library.mod.time_evaluator(*args, **kwargs)


@pytest.fixture(scope="module")
def library():
    data, weight, bias, residual = (te.placeholder(a.shape, name=n) for a, n in zip(ARGS, "dwbr"))
    k = te.reduce_axis((0, DEPTH), "k")
    product = te.compute((ROWS, COLUMNS), lambda i, j: te.sum(data[i, k] * weight[j, k], axis=[k]))
    out = te.compute((ROWS, COLUMNS), lambda i, j: product[i, j] + bias[j] + residual[i, j])
    func = te.create_prim_func([data, weight, bias, residual, out])
    return tvm.compile(func.with_attr("global_symbol", "main"), target={"kind": "llvm"})


def measured(library, options, candidate=None):
    recorded = Recorded(library)
    result = timing.time_kernel(recorded, tvm.cpu(), candidate or Dense(), ARGS, options, None)
    assert result.error_no == MeasureErrorNo.NO_ERROR
    assert all(0 < cost < 1 for cost in result.costs)
    return recorded, result


@pytest.mark.parametrize(
    "network, copies", [(0, 1), (CONSTANTS, 1), (CONSTANTS + 1, 2), (7 * CONSTANTS, 7)]
)
def test_as_many_copies_of_the_constants_as_the_network_is_larger(library, network, copies):
    options = RunOptions(number=9, repeat=5, constant_bytes=network)
    recorded, result = measured(library, options)
    assert len(result.costs) == 3  # without the extremes
    assert recorded.evaluated == (copies == 1)
    if copies > 1:
        timed = recorded.calls[1:]  # the first one checks that it runs
        assert len({tuple(call[1:3]) for call in timed}) == copies
        assert timed[0] != timed[1] and timed[0] == timed[copies]
        for position in (0, 3, 4):  # data, residual and result stay near
            assert len({call[position] for call in timed}) == 1


def test_copies_are_limited_and_hold_the_same_values(library):
    options = RunOptions(number=2000, repeat=1, constant_bytes=2**60)
    recorded, _ = measured(library, options)
    assert len({call[1] for call in recorded.calls}) == timing._MOST_COPIES
    large = [ArgInfo((1,), "float32"), ArgInfo((2**20, 16), "float32"), ArgInfo((1,), "float32")]
    copies = timing._copies(large, options)
    assert copies * 2**26 == timing._MOST_CONSTANT_BYTES


def test_repeats_take_the_time_that_was_asked_for(monkeypatch):
    calls, now = [], [0.0]

    def run(*tensors):
        calls.append(tensors)
        now[0] += 1e-4

    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])
    options = RunOptions(number=2, repeat=3, min_repeat_ms=5)
    costs = timing.time_in_rotation(run, [("a",), ("b",), ("c",)], options)
    assert costs == pytest.approx([1e-4] * 3)
    assert len(calls) == pytest.approx(2 + 3 * 50, abs=3)  # 5 ms of 0.1, after two to know that
    assert [call[0] for call in calls[:6]] == list("abcabc")


def test_other_devices_and_kernels_without_constants_have_one_set(library):
    class Elsewhere(Dense):
        device = "cuda"

    recorded, _ = measured(library, RunOptions(constant_bytes=2**30), Elsewhere())
    assert recorded.evaluated
    shape = ArgInfo((8,), "float32")
    assert timing.constant_arguments((shape, shape)) == []
    assert timing._copies((shape, shape), RunOptions(constant_bytes=2**30)) == 1
