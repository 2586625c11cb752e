"""Pools, depthwise convolutions and elementwise functions with a tile of results per thread."""

import re
from math import prod

import numpy as np
import pytest
from tvm import te, topi
from tvm.target import Target

from schedules import rules
from schedules.cuda import register_tiles
from schedules.cuda.stages import Stages
from tests.ptx import ptxas
from tests.ptx.scheduled import Scheduled
from tests.schedules.cuda.checking import tensor
from tests.schedules.cuda.families import Family

TARGET = Target({"kind": "cuda", "arch": "sm_90"}, host="llvm")
TOLERANCE = {"float32": 1e-5, "float16": 1e-2, "bfloat16": 1e-1, "int8": 0}
pytestmark = pytest.mark.skipif(ptxas.NVCC is None, reason="needs nvcc")


def pool(shape, dtype, layout, kind, window=3, stride=2, padding=1, **options):
    x = tensor(*shape, dtype=dtype)
    sides = [[each] * 2 for each in (window, stride, 1)]
    pads = [padding] * 4
    y = topi.nn.pool2d(x, *sides, pads, kind, layout=layout, **options)
    return [x, y if dtype == "int8" else topi.nn.relu(y)]


def depthwise(shape, dtype, layout, window=3, stride=1, padding=1):
    x, sides = tensor(*shape, dtype=dtype), (window, window)
    channels = shape[1 if layout == "NCHW" else 3]
    if layout == "NCHW":
        w = tensor(channels, 1, *sides, dtype=dtype, name="w")
        y = topi.nn.depthwise_conv2d_nchw(x, w, stride, padding, 1)
    else:
        w = tensor(*sides, channels, 1, dtype=dtype, name="w")
        y = topi.nn.depthwise_conv2d_nhwc(x, w, stride, padding, 1)
    return [x, w, topi.nn.relu(y)]


def scaled(dtype, rows, columns):
    x, b = tensor(rows, columns, dtype=dtype), tensor(columns, dtype=dtype, name="b")
    if dtype == "int8":  # C computes sums of bytes in int, LLVM in int8
        return [x, b, topi.maximum(x, b)]
    return [x, b, topi.nn.relu(topi.add(x, b) * te.const(0.5, dtype))]


def proven(tensors, dtype, rule="cuda.windows"):
    """Run a kernel in the interpreter; what it took, after its results were compared."""
    family = Family("tiles", lambda: tensors, TOLERANCE[dtype])
    found, func, target = family.scheduled()
    scheduled, inputs = Scheduled(func, target), family.inputs()
    outcome = scheduled.interpret(inputs)
    assert found == rule
    assert [str(problem) for problem in outcome.problems[:5]] == []
    family.check(outcome.outputs[0], inputs)
    assert sum(each.spilled for each in ptxas.resources(scheduled.ptx, "sm_90").values()) == 0
    return scheduled, outcome.traffic


IMAGES = {"NCHW": (1, 24, 56, 56), "NHWC": (1, 56, 56, 64)}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("kind", ["max", "avg"])
def test_pools_of_every_dtype_and_layout_are_right(kind, layout, dtype):
    proven(pool(IMAGES[layout], dtype, layout, kind, count_include_pad=False), dtype)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("stride", [1, 2])
def test_depthwise_convolutions_are_right_and_read_no_more_than_a_thread_per_result(
    stride, layout, dtype
):
    tensors = depthwise(IMAGES[layout], dtype, layout, stride=stride)
    scheduled, traffic = proven(tensors, dtype)
    plain = Stages().apply(te.create_prim_func(tensors), TARGET, False)
    inputs = Family("plain", lambda: tensors).inputs()
    before = Scheduled(plain.mod["main"], TARGET).interpret(inputs, races=False).traffic
    share = 0.85 if stride == 1 else 1
    assert traffic.sectors <= share * before.sectors
    assert traffic.requests <= share * before.requests
    assert traffic.instructions <= share * before.instructions
    if layout == "NHWC" and stride == 1:
        assert re.search(r"ld\.global(\.nc)?\.v[24]\.", scheduled.ptx)
        assert re.search(r"st\.global\.v[24]\.", scheduled.ptx)


@pytest.mark.parametrize(
    ("dtype", "bytes_"), [("float32", 4), ("float16", 2), ("bfloat16", 2), ("int8", 1)]
)
def test_large_elementwise_results_are_computed_in_vectors(dtype, bytes_):
    rows, columns = 2000, 296
    scheduled, traffic = proven(scaled(dtype, rows, columns), dtype, "cuda.stages")
    assert re.search(r"st\.global\.(v[24]|[ub](32|64))", scheduled.ptx)
    elements = rows * columns
    assert traffic.sectors < 1.1 * (3 * elements * bytes_) / 32
    assert traffic.requests <= 3 * elements / 32 / 4 + 1
    plain = te.create_prim_func(scaled(dtype, 7, 36))
    assert "vectorized" not in rules.schedule(plain, TARGET).func.script()


def test_a_gathered_operand_is_read_once_per_result():
    x, at = tensor(5000, 64), tensor(900, dtype="int32", name="at")
    family = Family("take", lambda: [x, at, topi.take(x, at, 0)], prepare=_within)
    _, func, target = family.scheduled()
    outcome = Scheduled(func, target).interpret(family.inputs())
    assert outcome.problems == []
    family.check(outcome.outputs[0], family.inputs())
    elements = 900 * 64
    assert outcome.traffic.sectors < 1.5 * 2 * elements * 4 / 32


def _within(inputs):
    inputs[1] %= 5000


def test_shapes_at_random_are_right():
    rng = np.random.default_rng(7)
    for _ in range(12):
        n, h, w = rng.integers(1, 4), *rng.integers(1, 31, 2)
        c = int(rng.choice([1, 3, 8, 12, 17, 32]))
        window, stride, padding = (int(rng.integers(*each)) for each in ((1, 5), (1, 4), (0, 3)))
        padding = min(padding, window // 2)
        if min(h, w) + 2 * padding < window:
            continue
        layout = str(rng.choice(["NCHW", "NHWC"]))
        dtype = str(rng.choice(["float32", "float16", "bfloat16"]))
        shape = tuple(map(int, (n, c, h, w) if layout == "NCHW" else (n, h, w, c)))
        if rng.integers(2):
            tensors = depthwise(shape, dtype, layout, window, stride, padding)
        else:
            kind, ceil = str(rng.choice(["max", "avg"])), bool(rng.integers(2))
            tensors = pool(shape, dtype, layout, kind, window, stride, padding, ceil_mode=ceil)
        if prod(tensors[-1].shape).value and window > 1:
            proven(tensors, dtype)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_a_global_pool_reads_whole_sectors(layout):
    shape = (2, 320, 7, 7) if layout == "NCHW" else (2, 7, 7, 320)
    x = tensor(*shape)
    y = topi.nn.adaptive_pool(x, (1, 1), "avg", layout)
    _, traffic = proven([x, y], "float32")
    assert traffic.sectors < 2 * (prod(shape) + 640) * 4 / 32


def test_every_tile_is_right():
    """Not only the tile with the least predicted time."""
    family = Family("tiles", lambda: depthwise((1, 2, 5, 8), "float16", "NHWC"), 1e-2)
    inputs, count = family.inputs(), 0
    for _, _, schedule in register_tiles._tiled(family.func(), 132):
        outcome = Scheduled(schedule.mod["main"], TARGET).interpret(inputs)
        assert outcome.problems == []
        family.check(outcome.outputs[0], inputs)
        count += 1
    assert count == 8


def test_a_short_image_keeps_many_threads():
    """Tiles save traffic, but a thread each is faster where the device is not full."""
    tensors = depthwise((1, 960, 7, 7), "float32", "NCHW")
    scheduled, _ = proven(tensors, "float32")
    threads = sum(prod(launch.grid) * prod(launch.block) for launch in scheduled.launches)
    assert threads >= 960 * 7 * 7


def test_a_reshape_whose_vectors_cross_rows_is_scheduled():
    """Four neighbors of the result are in one row or two: no tile is of a known size."""
    x = tensor(2, 6, 5, 5)
    func = te.create_prim_func([x, topi.reshape(x, (2, 150))])
    schedule = register_tiles.RegisterTiles().apply(func, TARGET, False)
    values = np.arange(300, dtype="float32").reshape(2, 6, 5, 5)
    outcome = Scheduled(schedule.mod["main"], TARGET).interpret([values])
    assert outcome.problems == []
    np.testing.assert_array_equal(outcome.outputs[0], values.reshape(2, 150))
