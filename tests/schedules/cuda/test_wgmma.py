"""Products and convolutions on Hopper's tensor cores: their kernels' PTX, interpreted."""

from __future__ import annotations

import numpy as np
import pytest
from tvm.target import Target

from schedules import rules
from schedules.cuda import device as devices
from schedules.cuda.gemm.contraction import take_apart
from schedules.cuda.gemm.gemm_tiles import MMA_TILES, WGMMA_TILES, Plan, cheapest
from tests.ptx import ptxas
from tests.ptx.mutants import mutants
from tests.ptx.scheduled import Scheduled
from tests.schedules.cuda.families import FAMILIES, planned
from tests.schedules.cuda.test_tensor_cores import convolution, product, values

HOPPER = Target({"kind": "cuda", "arch": "sm_90a"}, host="llvm")
FAMILIES_OF_WGMMA = {each.name: each for each in FAMILIES if each.arch == "sm_90a"}
needs_nvcc = pytest.mark.skipif(
    ptxas.NVCC is None or ptxas.PTXAS is None, reason="needs nvcc and ptxas"
)


def scheduled_for(arch, func):
    target = Target({"kind": "cuda", "arch": arch}, host="llvm")
    found = rules.schedule(func, target)
    assert found.rule == "cuda.tensor_cores"
    return found.func.script()


@pytest.mark.parametrize(
    ("arch", "offered"), [("sm_90a", True), ("sm_90", False), ("sm_100a", False), ("sm_80", False)]
)
def test_large_products_use_wgmma_where_the_architecture_has_it(arch, offered):
    assert ("baton_wgmma" in scheduled_for(arch, product(1, 2048, 2048, 2048, True))) == offered


def test_small_products_stay_on_mma_sync():
    assert "baton_mma" in scheduled_for("sm_90a", product(1, 128, 768, 768, True))


@needs_nvcc
@pytest.mark.parametrize("b_is_transposed", [True, False])
def test_products_of_float32_round_their_factors_and_do_not_cut_them_off(b_is_transposed):
    func = product(1, 64, 64, 256, b_is_transposed, "float32")
    tile = next(each for each in WGMMA_TILES if (each.i, each.j) == (64, 64))
    a, b = values(func)
    outcome = Scheduled(planned(func, HOPPER, tile), HOPPER).interpret([a, b])
    assert [str(problem) for problem in outcome.problems] == []
    columns = "zjk" if b_is_transposed else "zkj"
    a, b = (nearest_tf32(each).astype("float64") for each in (a, b))
    expected = 2 * np.einsum(f"zik,{columns}->zij", a, b)
    np.testing.assert_allclose(outcome.outputs[0], expected, rtol=1e-5, atol=1e-5)


def nearest_tf32(values):
    """float32 rounded to 10 bits of its fraction, halfway cases away from zero."""
    return ((values.view("uint32") + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view("float32")


def test_wgmma_takes_less_time_for_a_large_product_by_the_prices():
    taken = take_apart(product(1, 4096, 4096, 4096, True))
    device = devices.of(HOPPER)
    best = {}
    for name, tiles in (("mma", MMA_TILES), ("wgmma", WGMMA_TILES)):
        plan = cheapest(tiles, taken, device)
        assert isinstance(plan, Plan)
        best[name] = plan.seconds(device, 2)
    assert best["wgmma"] < 0.8 * best["mma"]


@pytest.mark.parametrize(
    ("rows", "columns", "limit"), [(128, 256, "multiply"), (128, 128, "read"), (64, 64, "read")]
)
def test_the_rate_is_that_of_tensor_cores_or_of_shared_memory(rows, columns, limit):
    """Cycles of 64 bytes of k in half: the multiplication's, and those of 128 bytes each."""
    device = devices.of(HOPPER)
    multiply = rows * columns * 32 / 2048
    read = (rows * 64 + rows // 64 * columns * 64 + (rows + columns) * 64) / 128
    cycles = rows * columns * 64 / device.wgmma_rate(rows, columns, False)
    assert cycles == pytest.approx({"multiply": multiply, "read": read}[limit])
    assert cycles == pytest.approx(max(multiply, read))


@needs_nvcc
@pytest.mark.parametrize("tile", WGMMA_TILES, ids=lambda tile: f"{tile.i}x{tile.j}x{tile.k_bytes}")
def test_tiles_take_the_registers_they_are_priced_with_and_ptxas_does_not_serialize(tile):
    func = planned(convolution(1, 64, (28, 28), 256, 3, pad=1, nhwc=True), HOPPER, tile)
    (used,) = ptxas.resources(Scheduled(func, HOPPER).ptx, "sm_90a").values()
    assert (used.spilled, used.serialized) == (0, False)
    assert used.registers <= tile.registers


@needs_nvcc
@pytest.mark.parametrize("stages", [3, 4])
@pytest.mark.parametrize("b_is_transposed", [True, False])
def test_products_are_right_at_shapes_that_no_tile_divides(b_is_transposed, stages):
    func = product(2, 70, 130, 200, b_is_transposed)
    tile = next(each for each in WGMMA_TILES if (each.i, each.j) == (64, 128))
    inputs = list(values(func))
    outcome = Scheduled(planned(func, HOPPER, tile, 1, stages), HOPPER).interpret(inputs)
    assert [str(problem) for problem in outcome.problems] == []
    columns = "zjk" if b_is_transposed else "zkj"
    a, b = (each.astype("float64") for each in inputs)
    expected = 2 * np.einsum(f"zik,{columns}->zij", a, b)
    np.testing.assert_allclose(outcome.outputs[0], expected, rtol=2e-3, atol=2e-3)


@needs_nvcc
@pytest.mark.parametrize("name", ["wgmma, columns", "wgmma, conv", "wgmma, int8"])
def test_kernels_of_families_are_right_and_do_nothing_wrong(name):
    family = FAMILIES_OF_WGMMA[name]
    _, func, target = family.scheduled()
    inputs = family.inputs()
    outcome = Scheduled(func, target).interpret(inputs)
    assert [str(problem) for problem in outcome.problems] == []
    family.check(outcome.outputs[0], inputs)


@needs_nvcc
def test_missing_fences_waits_and_barriers_are_noticed():
    family = FAMILIES_OF_WGMMA["wgmma, dense"]
    _, func, target = family.scheduled()
    scheduled, inputs = Scheduled(func, target), family.inputs()
    found = list(mutants(scheduled.ptx, scheduled.launches))
    removed = {each.missing.split(" of line")[0] for each in found if not each.is_shorter}
    assert removed == {
        *("bar.sync", "cp.async.wait_group", "fence.proxy.async", "wgmma.fence"),
        "wgmma.wait_group",
    }
    unnoticed = [
        each.missing
        for each in found
        if not scheduled.interpret(inputs, each.ptx, each.launches).problems
    ]
    assert unnoticed == []
