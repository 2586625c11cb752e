"""The cost rules of the tiled product."""

import pytest
import tvm

from schedules.x86.machine.cpu import Machine
from schedules.x86.machine.cpu_models import CORES, GENERIC
from schedules.x86.matmul.matmul_rules import Extents, choose_tile, plan

from .products import TARGETS

AVX512 = Machine(512, 32, 48 << 10, 1 << 20, 32 << 20, 2, True, CORES["znver5"])
AVX2 = Machine(256, 16, 32 << 10, 256 << 10, 8 << 20, 4, True, GENERIC[256])


@pytest.mark.parametrize("machine", [AVX512, AVX2])
@pytest.mark.parametrize("m", [1, 2, 7, 13, 128, 197])
@pytest.mark.parametrize("n", [1, 10, 384, 1000])
def test_a_register_tile_fits_the_registers_and_wastes_little(machine, m, n):
    lanes = machine.lanes("float32")
    tile_m, tile_n = choose_tile(Extents(1, m, n, 256, 4), machine, lanes)
    vectors = tile_n // lanes
    assert tile_n % lanes == 0 and tile_m <= m
    assert tile_m * vectors + (vectors + 1 if tile_m > 1 else 1) <= machine.vector_registers
    padded = -(-m // tile_m) * tile_m * -(-n // tile_n) * tile_n
    assert padded <= 1.16 * m * (-(-n // lanes) * lanes)


def test_rows_that_divide_are_preferred():
    tile_m, _ = choose_tile(Extents(1, 128, 768, 768, 4), AVX512, 16)
    assert 128 % tile_m == 0


def test_one_row_gets_several_accumulators():
    tile_m, tile_n = choose_tile(Extents(1, 1, 1024, 512, 4), AVX512, 16)
    assert tile_m == 1 and tile_n >= 8 * 16


def test_k_is_blocked_when_a_panel_exceeds_l2():
    avx2 = TARGETS[1]
    assert plan(Extents(1, 128, 768, 768, 4), avx2, "float32", None).val("block_k") == 768
    blocked = plan(Extents(1, 128, 768, 24576, 4), avx2, "float32", None)
    block_k = blocked.val("block_k")
    assert 24576 % block_k == 0 and block_k * blocked.val("tile_n") * 4 <= 128 << 10


def test_narrow_vectors_leave_half_of_l2_to_the_panel_that_comes_next():
    config = plan(Extents(1, 128, 768, 3072, 4), TARGETS[1], "float32", None)
    panel = config.val("block_k") * config.val("tile_n") * 4
    assert config.val("block_k") < 3072 and 2 * panel <= 256 << 10


def test_tasks_of_a_blocked_product_have_as_many_rows_each():
    config = plan(Extents(1, 180, 768, 3072, 4), TARGETS[1], "float32", None)
    row_tiles = -(-180 // config.val("tile_m"))
    assert config.val("block_k") < 3072 and row_tiles % config.val("task_rows") == 0


def test_k_is_not_blocked_where_tasks_could_not_have_as_many_rows_each():
    config = plan(Extents(1, 41 * 6, 768, 3072, 4), TARGETS[1], "float32", None)
    assert config.val("tile_m") == 6 and config.val("block_k") == 3072


def test_a_prime_k_is_not_cut_into_single_steps():
    config = plan(Extents(1, 128, 768, 24593, 4), TARGETS[1], "float32", None)
    assert config.val("block_k") == 24593


def test_tall_left_operands_stay_in_cache_by_rows():
    config = plan(Extents(1, 50000, 64, 256, 4), TARGETS[1], "float32", None)
    assert config.val("task_order") == "bmn"
    rows = config.val("task_rows") * config.val("tile_m")
    assert rows * 256 * 4 <= 128 << 10


def test_columns_stay_in_one_task_when_the_last_vector_is_partial():
    assert plan(Extents(12, 197, 197, 64, 4), TARGETS[1], "float32", None).val("task_order") == "bm"
    assert plan(Extents(1, 1, 1001, 512, 4), TARGETS[1], "float32", None).val("task_order") == "bnm"


@pytest.mark.parametrize("threads", [2, 8, 64])
def test_tasks_keep_the_threads_busy(threads):
    target = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": threads})
    for m, n in [(128, 384), (512, 768), (128, 30522), (3136, 64)]:
        config = plan(Extents(1, m, n, 384, 4), target, "float32", None)
        rows = config.val("task_rows")
        row_tiles, columns = -(-m // config.val("tile_m")), -(-n // config.val("tile_n"))
        columns = 1 if config.val("task_order") == "bm" else columns
        longest = -(-columns * -(-row_tiles // rows) // threads) * rows
        assert longest * threads <= 1.35 * max(columns * row_tiles, threads)
