"""Products and convolutions in float32: their kernels' PTX, interpreted, against the CPU."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, topi

from schedules.cuda import device as devices
from schedules.cuda.gemm.contraction import take_apart
from schedules.cuda.gemm.float32_products import Float32Products
from schedules.cuda.gemm.gemm_tiles import FMA_TILES, Tile, cheapest
from tests.schedules.cuda.checking import reference
from tests.schedules.cuda.families import planned
from tests.schedules.cuda.test_tensor_cores import (
    TARGET,
    convolution,
    interpreted,
    needs_nvcc,
    product,
    ptxas,
)


def tile(i, j, warps_i, warps_j):
    return Tile(i, j, warps_i, warps_j, on_tensor_cores=False)


FUNCTIONS = [
    (product(1, 40, 48, 72, True, "float32"), tile(32, 32, 2, 1), 1),
    (product(2, 33, 70, 50, False, "float32"), tile(64, 64, 2, 1), 1),
    (convolution(1, 6, (9, 10), 20, 3, stride=2, pad=1, dtype="float32"), tile(32, 64, 2, 1), 2),
    (convolution(1, 8, (8, 8), 33, 1, dtype="float32"), tile(16, 32, 1, 1), 1),
]


@needs_nvcc
@pytest.mark.parametrize(("func", "tile", "parts"), FUNCTIONS)
def test_kernels_are_right_at_shapes_that_no_tile_divides(func, tile, parts):
    inputs, found = interpreted(func, planned(func, TARGET, tile, parts, stages=3))
    np.testing.assert_allclose(found, reference(func, inputs), rtol=1e-5, atol=1e-5)


@needs_nvcc
def test_the_largest_tile_stays_in_registers(tmp_path):
    func = planned(
        convolution(1, 64, (28, 28), 256, 3, pad=1, dtype="float32"), TARGET, FMA_TILES[0]
    )
    registers, spills = ptxas(func, tmp_path)
    assert (spills, registers <= FMA_TILES[0].registers) == (0, True)


def test_thin_products_are_left_to_other_rules():
    assert take_apart(product(1, 64, 4, 64, True, "float32")).extent("j") == 4
    assert Float32Products().apply(product(1, 64, 4, 64, True, "float32"), TARGET, False) is None
    assert Float32Products().apply(product(1, 64, 64, 64, True, "float16"), TARGET, False) is None


def test_k_is_divided_only_where_that_is_clearly_cheaper():
    """The second kernel takes a launch; for long sums over few results it is worth that."""

    def parts(m, n, k):
        a, b = te.placeholder((m, k), name="a"), te.placeholder((k, n), name="b")
        func = te.create_prim_func([a, b, topi.matmul(a, b)])
        return cheapest(FMA_TILES, take_apart(func), devices.of(TARGET)).parts

    assert parts(128, 3072, 768) == 1
    assert parts(128, 768, 3072) > 1
    assert parts(2, 3072, 768) > 1
