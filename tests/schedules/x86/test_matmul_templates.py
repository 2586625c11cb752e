"""AutoTVM's templates of matrix products: any config of their spaces is right."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedules import strategy
from schedules.config import ConfigEntity
from schedules.matmul import BatchMatmulWorkload, DenseWorkload, Operand
from schedules.x86.matmul import dense
from schedules.x86.templates import matmul_templates
from tests.sweep import examples

from .products import HOST, TARGETS, relative_error


@st.composite
def factors(draw, extent, count, most=1 << 30):
    """A split of `extent` into `count` factors, the inner ones of at most `most`."""
    rest, inner = extent, []
    for _ in range(count - 1):
        divisors = [d for d in range(1, rest + 1) if rest % d == 0 and d <= most]
        inner.append(draw(st.sampled_from(divisors)))
        rest //= inner[-1]
    return [rest, *inner]


def config(**splits):
    return ConfigEntity.from_entity([[name, "sp", value] for name, value in splits.items()])


@examples(4)
@given(st.data(), st.booleans())
def test_any_config_of_dense_pack_is_right(data, with_tile_inner):
    w = DenseWorkload((2, 6), 24, 36)
    splits = {
        "tile_y": data.draw(factors(12, 3)),
        "tile_x": data.draw(factors(24, 3)),
        "tile_k": data.draw(factors(36, 2)),
    }
    if with_tile_inner:
        splits["tile_inner"] = data.draw(factors(12, 2, most=16))
    assert relative_error(w, matmul_templates.DENSE_PACK, config=config(**splits)) < 1e-5


@examples(3)
@given(st.data())
def test_any_config_of_dense_nopack_is_right(data):
    w = DenseWorkload((2, 6), 24, 36, weight=Operand((24, 36), (1, 0)))
    extents = {"tile_y": 12, "tile_x": 24, "tile_k": 36}
    splits = {name: data.draw(factors(extent, 2)) for name, extent in extents.items()}
    assert relative_error(w, matmul_templates.DENSE_NOPACK, config=config(**splits)) < 1e-5


@examples(3)
@given(st.data())
def test_any_config_of_batch_matmul_is_right(data):
    w = BatchMatmulWorkload(Operand.plain((3, 12, 36)), Operand((3, 24, 36), (0, 2, 1)))
    extents = {"tile_y": 12, "tile_x": 24, "tile_k": 36}
    splits = {name: data.draw(factors(extent, 2)) for name, extent in extents.items()}
    assert relative_error(w, matmul_templates.BATCH_MATMUL, config=config(**splits)) < 1e-5


@pytest.mark.parametrize(
    "splits",
    [
        {"tile_y": [-1, 5, 2], "tile_x": [-1, 2, 5], "tile_k": [-1, 4], "tile_inner": [-1, 3]},
        {"tile_y": [-1, 1, 8], "tile_x": [-1, 1, 16], "tile_k": [-1, 1], "tile_inner": [-1, 8]},
        {"tile_y": [-1, 5, 1], "tile_x": [-1, 2, 5], "tile_k": [-1, 7]},
    ],
)
def test_factors_that_do_not_divide_are_right_too(splits):
    w = DenseWorkload((12,), 24, 36)
    assert relative_error(w, matmul_templates.DENSE_PACK, config=config(**splits)) < 1e-5


@pytest.mark.parametrize("name", [matmul_templates.DENSE_NOPACK, matmul_templates.BATCH_MATMUL])
@pytest.mark.parametrize("lanes", [5, 8, 64])
def test_lanes_that_do_not_divide_k_are_right_too(name, lanes):
    dense_layer = DenseWorkload((12,), 24, 36, weight=Operand((24, 36), (1, 0)))
    stack = BatchMatmulWorkload(Operand.plain((3, 12, 36)), Operand((3, 24, 36), (0, 2, 1)))
    w = dense_layer if name == matmul_templates.DENSE_NOPACK else stack
    splits = {"tile_y": [-1, 5], "tile_x": [-1, 7], "tile_k": [-1, lanes]}
    assert relative_error(w, name, config=config(**splits)) < 1e-5


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: str(t.attrs["mcpu"]))
@pytest.mark.parametrize("shape", [(1, 13, 7), (31, 40, 64)])
def test_fallback_values_of_dense_pack_are_right(target, shape):
    m, n, k = shape
    assert relative_error(DenseWorkload((m,), n, k), matmul_templates.DENSE_PACK, target) < 1e-5


@pytest.mark.parametrize("name", [matmul_templates.DENSE_PACK, matmul_templates.DENSE_NOPACK])
def test_an_elementwise_prologue_is_computed_first(name):
    weight = Operand((24, 36), (1, 0)) if name == matmul_templates.DENSE_NOPACK else None
    assert relative_error(DenseWorkload((2, 6), 24, 36, weight=weight), name, prologue=True) < 1e-5


def test_fallback_values_are_those_of_tvm_0_18():
    w = DenseWorkload((128,), 768, 768)
    avx2 = TARGETS[1]
    knobs = matmul_templates.pack_fallback(w, avx2).to_entity()
    assert knobs == [
        ["tile_y", "sp", [2, 8, 8]],
        ["tile_x", "sp", [3, 16, 16]],
        ["tile_k", "sp", [768, 1]],
        ["tile_inner", "sp", [16, 8]],
    ]
    stack = BatchMatmulWorkload(Operand.plain((12, 128, 64)), Operand.plain((12, 64, 20)))
    knobs = matmul_templates.batch_matmul_fallback(stack, avx2).to_entity()
    assert knobs == [["tile_k", "sp", [4, 16]], ["tile_x", "sp", [5, 4]], ["tile_y", "sp", [16, 8]]]


def test_a_record_beats_the_default_implementation():
    w = DenseWorkload((12,), 24, 36)
    record = ConfigEntity.from_entity(
        [["tile_y", "sp", [1, 3, 4]], ["tile_x", "sp", [3, 1, 8]], ["tile_k", "sp", [36, 1]]],
        source="topi:tuned.log:7",
        is_fallback=False,
        cost=1e-5,
    )
    data, weight = ("TENSOR", (12, 36), "float32"), ("TENSOR", (24, 36), "float32")
    task = ("dense_pack.x86", data, weight, None, "float32")

    def query(_, workload):
        return record if workload == task else None

    impl, chosen = strategy.select("nn.dense", w, HOST, query)
    assert (impl.name, chosen) == ("dense_pack.x86", record)
    impl, chosen = strategy.select("nn.dense", w, HOST, lambda target, workload: None)
    assert impl.name == dense.PACKED and math.isinf(chosen.cost)
