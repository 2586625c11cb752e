"""Dense layers against numpy in float64."""

import numpy as np
import pytest
import tvm_ffi
from hypothesis import given
from hypothesis import strategies as st
from tvm import te, tirx

from schedules import rules
from schedules.config import ConfigEntity, option
from schedules.matmul import DenseWorkload, Operand
from schedules.x86.machine.cpu import Machine
from schedules.x86.matmul import dense
from tests.sweep import examples

from .products import HOST, TARGETS, implementation, relative_error

AVX2 = TARGETS[1]

small = st.integers(1, 70)


@examples(4)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=3), small, small)
def test_packed_dense_of_any_shape_is_right(lead, n, k):
    assert relative_error(DenseWorkload(tuple(lead), n, k), dense.PACKED) < 1e-5


@examples(4)
@given(st.integers(2, 70), small, small, st.booleans())
def test_a_weight_known_at_run_time_is_read_as_it_lies(m, n, k, transposed):
    weight = Operand((n, k), (1, 0)) if transposed else Operand.plain((k, n))
    assert relative_error(DenseWorkload((m,), n, k, weight=weight), dense.TILED) < 1e-5


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: str(t.attrs["mcpu"]))
def test_every_x86_level_computes_ragged_rows_and_columns(target):
    w = DenseWorkload((2, 13), 45, 30)
    assert relative_error(w, dense.PACKED, target) < 1e-5


@pytest.mark.parametrize("n", [1, 10, 64, 1001])
def test_a_single_row_is_right(n):
    assert relative_error(DenseWorkload((1, 1), n, 33), dense.PACKED) < 1e-5


@pytest.mark.parametrize("m", [1, 3])
@pytest.mark.parametrize("k", [1024, 1022, 1021])
def test_rows_that_stream_their_weights_from_memory_are_right(m, k):
    w = DenseWorkload((m,), 144, k)
    assert k * 144 * 4 > Machine.from_target(AVX2).l2_bytes // 2
    assert relative_error(w, dense.PACKED, AVX2) < 1e-5


def test_weights_in_memory_are_read_at_four_places_by_one_row_tile():
    unrolled = {m: unrolled_loops(m) for m in (1, 40)}
    assert unrolled[1] == [8, 4]
    assert unrolled[40] == [8]


def unrolled_loops(m):
    """Unrolled loops of the reduction, inner ones first, where weights come from memory."""
    w = DenseWorkload((m,), 144, 1024)
    config = dense.fallback(w, AVX2)
    panels = (144 // config.val("tile_n"), 1024, config.val("tile_n"))
    operands = [te.placeholder(shape, "float32") for shape in ((m, 1024), panels)]
    product = dense.product(dense.PACKED, w, config, *operands)
    scheduled = rules.schedule(te.create_prim_func([*operands, product]), AVX2)
    found = []

    def visit(loop):
        if loop.kind == tirx.ForKind.UNROLLED and "ax2" in loop.loop_var.name:
            found.append(int(loop.extent))

    tvm_ffi.structural_walk(scheduled.func.body, (tirx.For, visit))
    return found


def test_a_single_row_reads_a_run_time_weight_in_place():
    w = DenseWorkload((1,), 128, 33, weight=Operand.plain((33, 128)))
    assert not implementation(w, dense.TILED).fallback(w, HOST).val("copy_panel")
    assert relative_error(w, dense.TILED) < 1e-5


def test_float64_is_computed_in_float64():
    w = DenseWorkload((9,), 20, 500, "float64", "float64")
    assert relative_error(w, dense.PACKED) < 1e-13


@pytest.mark.parametrize("order", ["bnm", "bmn", "bm"])
@pytest.mark.parametrize("block_k", [12, 36])
def test_every_task_order_and_k_blocking_is_right(order, block_k):
    knobs = {"tile_m": 3, "tile_n": 32, "block_k": block_k, "task_order": order, "task_rows": 2}
    config = ConfigEntity({name: option(value) for name, value in knobs.items()})
    w = DenseWorkload((2, 10), 70, 36)
    assert relative_error(w, dense.PACKED, config=config) < 1e-5


@pytest.mark.parametrize("weight", [None, Operand.plain((36, 70)), Operand((70, 36), (1, 0))])
def test_an_elementwise_prologue_is_computed_first(weight):
    w = DenseWorkload((2, 10), 70, 36, weight=weight)
    name = dense.PACKED if weight is None else dense.TILED
    assert relative_error(w, name, prologue=True) < 1e-5


def test_a_large_product_runs_in_parallel_and_is_right():
    assert relative_error(DenseWorkload((150,), 197, 129), dense.PACKED) < 1e-5


def test_packed_weights_are_panels_of_whole_tiles():
    config = ConfigEntity({"tile_m": option(1), "tile_n": option(4)})
    weight = np.arange(18.0).reshape(3, 6)
    packed = dense.pack_weight(np, weight, config)
    assert packed.shape == (2, 3, 4)
    assert (packed[0] == weight[:, :4]).all()
    assert (packed[1, :, :2] == weight[:, 4:]).all() and not packed[1, :, 2:].any()


def test_integers_are_not_taken():
    w = DenseWorkload((4,), 8, 8, "int8", "int32")
    assert not implementation(w, dense.PACKED).supports(w, HOST)
