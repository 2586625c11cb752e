"""Winograd convolutions along one axis and both against float64 numpy."""

from dataclasses import replace

import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st

from schedules import strategy
from schedules.config import ConfigEntity, option
from schedules.conv2d import Conv2dWorkload
from schedules.x86.conv import winograd, winograd_rules
from schedules.x86.conv.conv2d import DIRECT
from schedules.x86.machine.cpu import Machine
from tests.sweep import examples

from .test_conv2d import BY_NAME, TARGETS, relative_error

BY_MCPU = pytest.mark.parametrize("target", TARGETS, ids=lambda t: str(t.attrs["mcpu"]))
KERNELS = [(2, 2), (3, 3), (3, 4), (5, 5), (1, 3), (3, 1), (1, 4), (5, 1), (1, 7), (7, 1)]


def convolution(ic, size, oc, kernel, padding=None, batch=1):
    padding = padding or tuple(taps // 2 for taps in kernel) * 2
    return Conv2dWorkload(
        batch, ic, *size, oc, kernel, (1, 1), padding, (1, 1), constant_weight=True
    )


def error(w, target=TARGETS[0], **changes):
    knobs = {name: option(value) for name, value in changes.items()}
    config = ConfigEntity({**winograd_rules.fallback(w, target).knobs, **knobs})
    block = config.val("oc_block")
    return relative_error(w, BY_NAME[winograd.NAME], config, target, block)


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernels_along_one_axis_and_both_are_right(kernel):
    """All accurate tile sizes, each on one of the targets and in one of the loop orders."""
    w = convolution(16, (11, 13), 32, kernel, batch=2)
    for position, m in enumerate(winograd_rules.candidates(w), KERNELS.index(kernel)):
        target = TARGETS[position % len(TARGETS)]
        assert error(w, target, m=m, channels_outer=position % 2 == 0) < 3e-5


@examples(5)
@given(
    st.integers(1, 2),
    st.tuples(st.integers(7, 19), st.integers(7, 19)),
    st.sampled_from([16, 48]),
    st.sampled_from(KERNELS),
    st.tuples(*[st.integers(0, 3)] * 4),
)
def test_images_of_any_size_are_right(batch, size, oc, kernel, padding):
    w = convolution(16, size, oc, kernel, padding, batch)
    assert error(w) < 3e-5


@BY_MCPU
@pytest.mark.parametrize("groups", [1, 2, 7])
def test_signals_are_computed_in_groups_of_columns(target, groups):
    w = convolution(16, (1, 83), 32, (1, 3))
    tile = winograd_rules.fallback(w, target).val("tile_columns")
    assert error(w, target, channels_outer=False, group_columns=groups * tile) < 3e-5


def test_long_signals_have_groups_of_columns_that_fit_caches_and_keep_threads_busy():
    w = convolution(128, (1, 4096), 256, (1, 5))
    for mcpu in ("x86-64-v3", "skylake-avx512"):
        target = tvm.target.Target({"kind": "llvm", "mcpu": mcpu, "num-cores": 2})
        config = winograd_rules.fallback(w, target)
        columns = config.val("group_columns")
        assert columns and columns % config.val("tile_columns") == 0
        per_tile = 4 * winograd_rules.values(w, config.val("m")) * (128 + 256)
        assert columns * per_tile <= Machine.from_target(target).l2_bytes // 2
    assert not winograd_rules.fallback(convolution(64, (56, 56), 64, (3, 3)), target).val(
        "group_columns"
    )


def test_tiles_have_no_more_points_than_are_accurate():
    def sizes(*kernel):
        return list(winograd_rules.candidates(convolution(16, (32, 32), 16, kernel)))

    assert sizes(2, 2) == sizes(3, 3) == [2, 4] and sizes(4, 4) == sizes(3, 5) == [2]
    assert sizes(1, 3) == sizes(3, 1) == [2, 3, 4, 6]
    assert sizes(1, 5) == [2, 3, 4] and sizes(7, 1) == [2, 3]
    assert not sizes(7, 7) and not sizes(1, 1) and not sizes(1, 9)


def test_asymmetric_layers_of_inception_are_taken():
    for kernel in ((1, 7), (7, 1)):
        assert winograd_rules.supports(convolution(160, (17, 17), 192, kernel), TARGETS[0])
    assert winograd_rules.supports(convolution(48, (35, 35), 64, (5, 5)), TARGETS[0])


@BY_MCPU
@pytest.mark.parametrize("m", [2, 4])
@pytest.mark.parametrize(
    ("channels_outer", "split_rows", "split_columns"),
    [(False, False, False), (False, False, True), (True, False, False), (True, True, False)],
)
def test_winograd_tiles_cover_outputs_that_they_do_not_divide(
    target, m, channels_outer, split_rows, split_columns
):
    w = convolution(64, (13, 10), 64, (3, 3), (1, 0, 0, 1), batch=2)
    knobs = {
        "m": m,
        "rows": 1 if split_rows else 2,
        "tile_rows": 1,
        "tile_columns": min(-(-w.out_width // m), 3),
        "channels_outer": channels_outer,
        "split_rows": split_rows,
        "split_columns": split_columns,
    }
    assert error(w, target, **knobs) < 3e-5


@pytest.mark.parametrize("target", TARGETS[1:], ids=lambda t: str(t.attrs["mcpu"]))
@pytest.mark.parametrize(("m", "vectors"), [(2, 1), (4, 2)])
@pytest.mark.parametrize(
    ("channels_outer", "split_rows"), [(False, False), (True, False), (True, True)]
)
def test_flat_winograd_tiles_run_on_from_row_to_row(target, m, channels_outer, split_rows, vectors):
    w = convolution(32, (13, 10), 64, (3, 3), (1, 0, 0, 1), batch=2)
    lanes = Machine.from_target(target).lanes("float32")
    rows = -(-w.out_height // m)
    knobs = {
        "m": m,
        "oc_tile": vectors * lanes,
        "rows": 3 if rows % 3 == 0 else 1,
        "tile_rows": 1,
        "tile_columns": 2 if vectors == 1 else 5,
        "oc_group": vectors,
        "channels_outer": channels_outer,
        "split_rows": split_rows,
        "split_columns": False,
        "flat": True,
    }
    assert error(w, target, **knobs) < 3e-5


def test_winograd_is_not_taken_where_it_does_not_apply():
    right = convolution(64, (56, 56), 64, (3, 3))
    assert winograd_rules.supports(right, TARGETS[0])
    for change in (
        {"strides": (2, 2)},
        {"kernel": (1, 1)},
        {"dilation": (2, 2)},
        {"groups": 64},
        {"in_channels": 60},
        {"constant_weight": False},
        {"dtype": "float64"},
    ):
        assert not winograd_rules.supports(replace(right, **change), TARGETS[0])


def test_few_tiles_prefer_the_small_winograd_transform():
    w = convolution(512, (7, 7), 512, (3, 3))
    assert winograd_rules.fallback(w, TARGETS[0]).val("m") == 2


def test_winograd_groups_are_even_where_reading_the_weights_again_is_cheap():
    machine = replace(Machine.from_target(TARGETS[0]), num_cores=2, l2_bytes=1 << 20)
    sizes = range(1, 4)
    assert winograd_rules.balanced_group(14, sizes, 10**6, 10**5, machine) == 1  # 7 + 7 rows
    assert winograd_rules.balanced_group(14, sizes, 10**6, 10**7, machine) == 3  # few groups
    assert winograd_rules.balanced_group(12, sizes, 10**6, 10**5, machine) == 3  # 6 + 6 rows


def test_winograd_reads_weights_once_that_are_larger_than_the_caches():
    w = convolution(256, (14, 14), 256, (3, 3))
    target = tvm.target.Target({"kind": "llvm", "mcpu": "skylake-avx512"})
    assert winograd_rules.fallback(w, target).val("channels_outer")
    few = replace(w, in_channels=64, out_channels=64, height=56, width=56)
    assert not winograd_rules.fallback(few, target).val("channels_outer")


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_the_cheapest_is_chosen_and_direct_unless_it_is_clearly_dearer(target):
    wide, thin = convolution(64, (56, 56), 64, (3, 3)), convolution(16, (7, 7), 16, (3, 3))
    for w in (wide, thin):
        known = {each.name: each for each in strategy.registered("nn.conv2d", target)}
        share = known[winograd.NAME].cycles(w, target) / known[DIRECT].cycles(w, target)
        name = strategy.select("nn.conv2d", w, target)[0].name
        assert (name == DIRECT) == (share >= strategy.MIN_GAIN)
    assert strategy.select("nn.conv2d", wide, target)[0].name == winograd.NAME
