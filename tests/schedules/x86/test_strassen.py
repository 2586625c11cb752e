"""Strassen's product against float64 numpy."""

import functools
from dataclasses import replace

import numpy as np
import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st

from schedules import strategy
from schedules.config import ConfigEntity, option
from schedules.conv2d import Conv2dWorkload
from schedules.matmul import DenseWorkload, Operand
from schedules.winograd import combine
from schedules.x86.machine.cpu import Machine, collide
from schedules.x86.matmul import dense, strassen, strassen_rules
from tests.sweep import examples

from . import products
from .kernels import compiled
from .products import HOST, TARGETS
from .test_conv2d import relative_error as conv2d_error

AVX512 = tvm.target.Target({"kind": "llvm", "mcpu": "skylake-avx512", "num-cores": 2})
CPUS = (*TARGETS, AVX512)
MACHINES = [Machine.from_target(target) for target in CPUS]
ZEN5 = tvm.target.Target({"kind": "llvm", "mcpu": "znver5", "num-cores": 2})
ZEN3 = tvm.target.Target({"kind": "llvm", "mcpu": "znver3", "num-cores": 2})


def planned(extents, target, is_blocked=False, **changes):
    """The config of `plan` with other knobs."""
    machine = Machine.from_target(target)
    changes = {"oc_block": machine.lanes("float32"), **changes}
    knobs = {name: option(value) for name, value in changes.items()}
    return ConfigEntity({**strassen_rules.plan(extents, machine, is_blocked).knobs, **knobs})


def dense_error(w, target=HOST, prologue=False, **changes):
    config = planned((w.m, w.n, w.k), target, **changes)
    return products.relative_error(w, strassen.DENSE, target, config, prologue)


def pointwise(ic, size, oc, batch=1, stride=1):
    return Conv2dWorkload(
        batch, ic, *size, oc, (1, 1), (stride, stride), (0, 0, 0, 0), (1, 1), constant_weight=True
    )


def conv2d_relative_error(w, target=HOST, ic_block=8, **changes):
    known = strategy.registered("nn.conv2d", target)
    impl = next(impl for impl in known if impl.name == strassen.CONV2D)
    config = planned(strassen.extents_of(w), target, is_blocked=True, **changes)
    return conv2d_error(w, impl, config, target, ic_block)


def test_seven_products_of_quadrants_are_the_product():
    x, weight = np.random.default_rng(0).integers(-9, 9, (2, 6, 6))
    quadrants = [[a[i : i + 3, j : j + 3] for i in (0, 3) for j in (0, 3)] for a in (x, weight)]
    seven = [
        combine(a, quadrants[0].__getitem__) @ combine(b, quadrants[1].__getitem__)
        for a, b in zip(strassen._X, strassen._WEIGHT, strict=True)
    ]
    result = [combine(row, seven.__getitem__) for row in strassen._OUT]
    assert (np.block([result[:2], result[2:]]) == x @ weight).all()


@examples(4)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=3),
    st.integers(1, 10),
    st.integers(1, 10),
    st.booleans(),
)
def test_dense_layers_of_any_rows_are_right(lead, n_vectors, k_vectors, prologue):
    lanes = Machine.from_target(HOST).lanes("float32")
    w = DenseWorkload(tuple(lead), n_vectors * lanes, k_vectors * lanes)
    assert dense_error(w, prologue=prologue) < 1e-5


@examples(4)
@given(
    st.integers(1, 2),
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
    st.integers(1, 8),
    st.integers(1, 8),
    st.sampled_from([4, 8, 16]),
    st.integers(1, 2),
)
def test_pointwise_convolutions_of_any_image_are_right(
    batch, size, n_vectors, k_vectors, ic_block, stride
):
    lanes = Machine.from_target(HOST).lanes("float32")
    w = pointwise(k_vectors * lanes, size, n_vectors * lanes, batch, stride)
    assert conv2d_relative_error(w, ic_block=ic_block) < 2e-6


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: str(t.attrs["mcpu"]))
@pytest.mark.parametrize("m", [12, 13])
@pytest.mark.parametrize(("block_k", "task_rows", "group"), [(16, 1, 1), (64, 7, 2), (32, None, 2)])
def test_every_x86_level_computes_blocks_and_tasks(target, m, block_k, task_rows, group):
    lanes = Machine.from_target(target).lanes("float32")
    rows = -(-m // 2)
    w = DenseWorkload((m,), 8 * lanes, 128)
    changes = {"tile_m": min(4, task_rows or rows), "tile_n": 2 * lanes, "block_k": block_k}
    if task_rows == 7 and rows != 7:
        task_rows = None
    error = dense_error(w, target, **changes, group=group, task_rows=task_rows or rows)
    assert error < 1e-5


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: str(t.attrs["mcpu"]))
def test_every_x86_level_computes_images(target):
    assert conv2d_relative_error(pointwise(64, (7, 7), 96), target) < 2e-6


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: str(t.attrs["mcpu"]))
@pytest.mark.parametrize(("stride", "task_rows", "group"), [(1, 7, 1), (2, 49, 2)])
@pytest.mark.parametrize("sums_by_task", [False, True])
def test_tasks_of_rows_may_make_sums_of_their_own(target, stride, task_rows, group, sums_by_task):
    w = pointwise(64, (14 * stride, 14 * stride), 128, stride=stride)
    tile_n = 2 * Machine.from_target(target).lanes("float32")
    knobs = {"tile_m": 4, "tile_n": tile_n, "task_rows": task_rows, "group": group}
    assert conv2d_relative_error(w, target, **knobs, sums_by_task=sums_by_task) < 2e-6


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: str(t.attrs["mcpu"]))
@pytest.mark.parametrize(("task_rows", "sums_by_task"), [(29, False), (49, False), (73, True)])
def test_the_last_task_may_have_fewer_rows_and_vectors(target, task_rows, sums_by_task):
    """289 pixels are 145 pairs of rows, of which the last is half a one: tasks of 29, 49 or 73."""
    lanes = Machine.from_target(target).lanes("float32")
    knobs = {"tile_m": 4, "tile_n": 3 * lanes, "block_k": 2 * lanes, "group": 2}
    w = pointwise(7 * lanes, (17, 17), 11 * lanes)
    knobs |= {"task_rows": task_rows, "sums_by_task": sums_by_task}
    assert conv2d_relative_error(w, target, **knobs) < 2e-6


@pytest.mark.parametrize(("task_rows", "vectors", "group"), [(22, 1, 3), (40, 2, 1), (59, 3, 1)])
def test_rows_of_dense_layers_may_be_no_whole_tasks_and_columns_no_whole_panels(
    task_rows, vectors, group
):
    lanes = Machine.from_target(HOST).lanes("float32")
    w = DenseWorkload((9, 13), 5 * lanes, 3 * lanes)
    knobs = {"tile_m": 4, "tile_n": vectors * lanes, "group": group, "task_rows": task_rows}
    assert dense_error(w, **knobs) < 1e-5


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: str(t.attrs["mcpu"]))
def test_the_last_panel_of_images_may_have_fewer_channels(target):
    lanes = Machine.from_target(target).lanes("float32")
    w = pointwise(4 * lanes, (5, 5), 10 * lanes)
    knobs = {"tile_m": 3, "tile_n": 2 * lanes, "task_rows": 13}
    for group in (1, 3):
        assert conv2d_relative_error(w, target, **knobs, group=group) < 2e-6


def test_columns_of_a_prime_number_of_vectors_get_panels_of_several():
    """784 channels are 49 pairs of vectors of eight."""
    config = strassen_rules.plan((196, 784, 320), Machine.from_target(ZEN3), is_blocked=True)
    assert config.val("tile_n") > config.val("lanes")


def test_blocks_of_sums_that_would_share_sets_of_the_cache_lie_apart():
    lanes = Machine.from_target(HOST).lanes("float32")
    assert collide(10, 128 * lanes * 4) and not collide(8, 128 * lanes * 4)
    assert not collide(10, 130 * lanes * 4)
    assert conv2d_relative_error(pointwise(20 * lanes, (16, 16), 4 * lanes)) < 2e-6


def test_a_row_is_not_read_beyond_the_last():
    """NaN behind x would spread over the last pair of rows."""
    w = DenseWorkload((5,), 32, 32)
    config = planned((5, 32, 32), HOST)
    x, weight = np.ones((5, 32), "f4"), np.ones((32, 32), "f4")
    packed = strassen.pack_weight(np, weight, config)
    tensors = [tvm.te.placeholder(array.shape) for array in (x, packed)]
    func = tvm.te.create_prim_func([*tensors, strassen.compute_dense(w, config, *tensors)])
    scheduled = products.rules.schedule(func, HOST)
    library = compiled(scheduled.func, HOST)
    beyond = np.full((8, 32), np.nan, "f4")
    beyond[:5] = 1
    behind = tvm.runtime.tensor(beyond)
    rows = tvm.runtime.from_dlpack(np.from_dlpack(behind)[:5])
    result = tvm.runtime.tensor(np.full((5, 32), np.nan, "f4"))
    library["main"](rows, tvm.runtime.tensor(packed), result)
    assert (result.numpy() == 32).all()


@pytest.mark.parametrize("target", CPUS, ids=str)
def test_large_products_are_taken_and_small_ones_are_not(target):
    def chosen(m, n, k):
        return strategy.select("nn.dense", DenseWorkload((m,), n, k), target)[0].name

    for extents in ((128, 768, 3072), (128, 3072, 768), (512, 1024, 1024)):
        assert chosen(*extents) == strassen.DENSE
    for extents in ((1, 4096, 4096), (16, 1024, 1024), (3136, 64, 64), (128, 64, 768)):
        assert chosen(*extents) == dense.PACKED


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: f"{m.vector_bits} bits")
@pytest.mark.parametrize("extents", [(128, 768, 768), (197, 384, 1536), (784, 512, 256)])
def test_tasks_keep_threads_busy_and_their_tensors_in_l2(machine, extents):
    m, n, _ = extents
    config = strassen_rules.plan(extents, replace(machine, num_cores=2))
    rows, group, tile_n = (config.val(name) for name in ("task_rows", "group", "tile_n"))
    tasks = (m + 1) // 2 // rows * (n // 2 // tile_n // group)
    assert tasks * rows * group * tile_n == (m + 1) // 2 * n // 2
    assert tasks % 2 == 0 or tasks > 20
    assert 4 * rows * config.val("block_k") <= machine.l2_bytes // 2
    assert group == 1 or 4 * 7 * rows * group * tile_n <= machine.l2_bytes // 2


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: f"{m.vector_bits} bits")
@pytest.mark.parametrize("extents", [(196, 512, 512), (784, 512, 256), (49, 2048, 512)])
def test_tasks_of_images_make_sums_of_their_own_if_they_are_enough_for_the_threads(
    machine, extents
):
    for cores in (1, 2, 16):
        config = strassen_rules.plan(extents, replace(machine, num_cores=cores), is_blocked=True)
        row_tasks = -(-extents[0] // 2) // config.val("task_rows")
        assert config.val("sums_by_task") == (row_tasks > 1 and row_tasks % cores == 0)


def test_tasks_of_images_have_rows_for_few_small_tiles():
    """49 rows, nine tiles of which one has a single row, would take 6% longer than 98."""
    for extents in ((196, 512, 512), (784, 512, 256)):
        config = strassen_rules.plan(extents, Machine.from_target(ZEN3), is_blocked=True)
        assert (config.val("tile_m"), config.val("task_rows")) == (6, 98)


@pytest.mark.parametrize(
    ("target", "size", "channels", "gains"),
    [
        (ZEN3, (14, 14), (256, 1024), True),
        (ZEN3, (14, 14), (512, 512), True),
        (ZEN3, (28, 28), (256, 512), True),
        (ZEN3, (7, 7), (512, 2048), True),
        (ZEN3, (19, 19), (728, 728), True),  # odd vectors and rows
        (ZEN3, (8, 8), (2048, 448), True),
        (ZEN3, (28, 28), (128, 512), False),
        (ZEN3, (28, 28), (512, 128), False),
        (ZEN3, (56, 56), (128, 128), False),
        (ZEN3, (5, 5), (2048, 2048), False),
        (ZEN5, (14, 14), (512, 512), True),
        (ZEN5, (14, 14), (1024, 512), True),
        (ZEN5, (28, 28), (512, 512), True),
        (ZEN5, (14, 14), (1024, 256), False),
    ],
    ids=str,
)
def test_images_are_taken_that_were_measured_to_gain(target, size, channels, gains):
    """With 16 registers 14x14 and 7x7 gain 4 to 9%, with 32 7 to 8%."""
    w = pointwise(channels[0], size, channels[1])
    name = strategy.select("nn.conv2d", w, target)[0].name
    assert (name == strassen.CONV2D) == gains


def test_only_constant_float32_weights_are_taken():
    w = DenseWorkload((128,), 768, 768)
    supports = functools.partial(strassen_rules.supports_dense, target=HOST)
    assert supports(w)
    assert not supports(replace(w, weight=Operand.plain((768, 768))))
    assert not supports(replace(w, dtype="float64", out_dtype="float64"))
    assert not supports(replace(w, n=772))
    conv = pointwise(2048, (28, 28), 2048)
    assert strassen_rules.supports_conv2d(conv, HOST)
    strided = pointwise(2048, (28, 28), 2048, stride=2)
    scarce = Machine.from_target(HOST).vector_registers <= 16
    assert strassen_rules.supports_conv2d(strided, HOST) == scarce
    assert not strassen_rules.supports_conv2d(strided, AVX512)
    for change in (
        {"kernel": (3, 3)},
        {"padding": (1, 1, 1, 1)},
        {"groups": 2},
        {"constant_weight": False},
        {"dtype": "float64", "out_dtype": "float64"},
    ):
        assert not strassen_rules.supports_conv2d(replace(conv, **change), HOST)


def test_a_record_of_another_implementation_goes_before():
    w = DenseWorkload((128,), 1024, 1024)
    chosen = strategy.select("nn.dense", w, HOST)
    assert chosen is not None and chosen[0].name == strassen.DENSE
    record = replace(dense.fallback(w, HOST), cost=1.0)
    records = {dense.PACKED: record}
    chosen = strategy.select("nn.dense", w, HOST, lambda _, workload: records.get(workload[0]))
    assert chosen == (products.implementation(w, dense.PACKED), record)
