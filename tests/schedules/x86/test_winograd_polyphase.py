"""Winograd convolutions in parts against float64 numpy, and where they are taken."""

from dataclasses import replace

import numpy as np
import pytest
import tvm
from hypothesis import Phase, assume, given
from hypothesis import strategies as st

from compiler import relay
from schedules import strategy
from schedules.config import ConfigEntity, option
from schedules.conv2d import Conv2dWorkload
from schedules.x86.conv import winograd_polyphase, winograd_polyphase_rules
from schedules.x86.machine.cpu import Machine
from tests.schedules.x86.kernels import BASELINE, V3
from tests.schedules.x86.test_conv2d import BY_NAME, relative_error
from tests.sweep import examples

IMPLEMENTATION = BY_NAME[winograd_polyphase.NAME]
# Points up to 2 and sums of up to 36 products; direct convolutions have 2e-6.
TOLERANCE = 5e-5
targets = st.sampled_from([V3, BASELINE])
paddings = st.tuples(*[st.integers(0, 3)] * 4)
sizes = st.tuples(st.integers(1, 23), st.integers(1, 23))
# Each example is a compilation: those that fail are not shrunk.


def conv(
    channels: int, size: int, filters: int, kernel: int, stride: int, pad: int | None = None
) -> Conv2dWorkload:
    pads = (kernel // 2 if pad is None else pad,) * 4
    one = (1, 1)
    shape = (1, channels, size, size, filters, (kernel, kernel), (stride, stride), pads, one)
    return Conv2dWorkload(*shape, constant_weight=True)


def error(w: Conv2dWorkload, target: tvm.target.Target, **knobs: object) -> float:
    base = winograd_polyphase_rules.fallback(w, target)
    config = ConfigEntity({**base.knobs, **{name: option(knob) for name, knob in knobs.items()}})
    lanes = Machine.from_target(target).lanes("float32")
    ic_block = lanes if w.in_channels % lanes == 0 else 1
    return relative_error(w, IMPLEMENTATION, config, target, ic_block)


@examples(3, phases=[Phase.generate])
@given(
    st.integers(1, 2),
    st.sampled_from([1, 3, 5, 8, 24]),
    sizes,
    st.sampled_from([8, 16, 24, 48]),
    st.sampled_from([3, 5, 7]),
    paddings,
    st.integers(0, 2),
    st.booleans(),
    targets,
)
def test_strides_of_two_are_right(n, channels, size, filters, kernel, pad, m, trim, target):
    square = (kernel, kernel)
    w = Conv2dWorkload(
        n, channels, *size, filters, square, (2, 2), pad, (1, 1), constant_weight=True
    )
    assume(w.out_height > 0 and w.out_width > 0)
    tiles = winograd_polyphase_rules.candidates(w)
    trim &= not winograd_polyphase_rules.is_plain(w, Machine.from_target(target))
    assert error(w, target, m=tiles[m % len(tiles)], trim=trim) < TOLERANCE


@examples(2, phases=[Phase.generate])
@given(
    st.integers(1, 2),
    st.sampled_from([8, 24]),
    sizes,
    st.sampled_from([8, 16, 40]),
    paddings,
    st.sampled_from([2, 4]),
    st.booleans(),
    targets,
)
def test_ragged_images_are_right(n, channels, size, filters, pad, m, trim, target):
    w = Conv2dWorkload(
        n, channels, *size, filters, (3, 3), (1, 1), pad, (1, 1), constant_weight=True
    )
    assume(w.out_height > 0 and w.out_width > 0)
    assert error(w, target, m=m, trim=trim) < TOLERANCE


@pytest.mark.parametrize("group", [1, 4])
def test_groups_of_channels_share_the_transformed_row(group):
    assert error(conv(3, 37, 64, 7, 2), V3, oc_group=2 * group) < TOLERANCE


def test_parts_leave_out_the_products_that_are_known_to_be_zero():
    w = conv(256, 14, 512, 3, 2)
    base = winograd_polyphase_rules.fallback(w, V3)
    weight = np.ones((512, 256, 3, 3), "float32")
    packed = winograd_polyphase.pack_weight(np, weight, base, 8)
    assert base.val("m") == 2
    # 4 x 4 values at finite points of both, 4 twice at one, 1 at none: 25, not 36 as for 4 phases.
    assert packed.size == 25 * 256 * 512


@pytest.mark.parametrize(
    ("w", "m", "trim"),
    [
        (conv(3, 224, 64, 7, 2), 3, False),
        (conv(64, 56, 128, 3, 2), 4, False),
        (conv(128, 28, 256, 3, 2), 2, False),
        (conv(512, 7, 512, 3, 1), 2, True),
        (conv(256, 14, 256, 3, 1), 4, True),
    ],
    ids=str,
)
def test_layers_with_fewer_products_in_parts_are_taken(w, m, trim):
    assert IMPLEMENTATION.supports(w, V3)
    config = IMPLEMENTATION.fallback(w, V3)
    assert (config.val("m"), config.val("trim")) == (m, trim)


def test_it_is_not_taken_where_it_does_not_apply():
    right = conv(64, 56, 128, 3, 2)
    assert IMPLEMENTATION.supports(right, V3)
    for change in (
        {"constant_weight": False},
        {"groups": 2},
        {"dtype": "float64", "out_dtype": "float64"},
        {"dilation": (2, 2)},
        {"strides": (2, 1)},
        {"out_channels": 127},
        {"kernel": (3, 5)},
    ):
        assert not IMPLEMENTATION.supports(replace(right, **change), V3), change
    many_registers = tvm.target.Target({"kind": "llvm", "mcpu": "skylake-avx512"})
    assert not IMPLEMENTATION.supports(right, many_registers)
    # Transforms outweigh few channels, an image of whole tiles has nothing to leave out, and V of
    # a large image does not fit L3.
    few = strategy.select("nn.conv2d", conv(3, 224, 32, 3, 2), V3)
    assert few[0].name != IMPLEMENTATION.name
    assert not IMPLEMENTATION.supports(conv(128, 28, 128, 3, 1), V3)
    assert not IMPLEMENTATION.supports(conv(64, 448, 64, 3, 2), V3)


def test_a_stem_is_built_of_it_unless_winograd_is_disabled():
    weight = np.random.default_rng(0).standard_normal((64, 3, 7, 7)).astype("float32")
    x = relay.var("x", shape=(1, 3, 64, 64))
    stem = relay.nn.conv2d(x, relay.const(weight), strides=(2, 2), padding=(3, 3))
    mod = tvm.IRModule.from_expr(relay.Function([x], stem))
    used = []
    for disabled in ([], ["Winograd"]):
        with tvm.transform.PassContext(opt_level=3, disabled_pass=disabled):
            lib = relay.build(mod, target="llvm -mcpu=x86-64-v3")
        used.append([kernel.implementation for kernel in lib.report.kernels])
    assert winograd_polyphase.NAME in used[0] and winograd_polyphase.NAME not in used[1]
