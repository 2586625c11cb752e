"""Convolutions on blocked layouts against float64 numpy."""

from dataclasses import replace

import numpy as np
import pytest
import tvm
import tvm_ffi
from hypothesis import given
from hypothesis import strategies as st
from tvm import te, topi

from schedules import rules, strategy
from schedules.config import option
from schedules.conv2d import Conv2dWorkload
from schedules.x86.conv import conv2d, depthwise, register_tile
from schedules.x86.machine.cpu import Machine
from schedules.x86.machine.host import host_name
from schedules.x86.templates import conv2d_template
from tests.sweep import examples

from .kernels import compiled

TARGETS = [
    tvm.target.Target({"kind": "llvm", "mcpu": mcpu})
    for mcpu in (host_name(), "x86-64-v3", "x86-64")
]
BY_NAME = {impl.name: impl for impl in strategy._STRATEGIES[("nn.conv2d", "cpu")]}


def reference(w: Conv2dWorkload, x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """NCHW convolution in float64."""
    top, left, bottom, right = w.padding
    padded = np.pad(x.astype("f8"), ((0, 0), (0, 0), (top, bottom), (left, right)))
    (kh, kw), (sh, sw), (dh, dw) = w.kernel, w.strides, w.dilation
    oh, ow = w.out_height, w.out_width
    per_group = w.in_channels // w.groups
    out = np.zeros((w.batch, w.groups, w.out_channels // w.groups, oh, ow))
    grouped = padded.reshape(w.batch, w.groups, per_group, *padded.shape[2:])
    kernels = weight.astype("f8").reshape(w.groups, -1, per_group, kh, kw)
    for y in range(kh):
        for z in range(kw):
            window = grouped[
                ...,
                y * dh : y * dh + (oh - 1) * sh + 1 : sh,
                z * dw : z * dw + (ow - 1) * sw + 1 : sw,
            ]
            out += np.einsum("ngchw,goc->ngohw", window, kernels[..., y, z])
    return out.reshape(w.batch, w.out_channels, oh, ow)


def relative_error(
    w: Conv2dWorkload, impl: strategy.Implementation, config, target, ic_block: int
) -> float:
    """Build conv2d + bias + relu with the implementation, run it, compare with the reference."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((w.batch, w.in_channels, w.height, w.width)).astype(w.dtype)
    weight = rng.standard_normal((w.out_channels, w.in_channels // w.groups, *w.kernel))
    weight = weight.astype(w.dtype)
    bias = rng.standard_normal(w.out_channels).astype(w.dtype)
    oc_block = conv2d.oc_block_of(config)
    packed = np.ascontiguousarray(impl.pack(np, weight, config, ic_block))
    chunks = -(-w.out_channels // oc_block)
    blocked_x = x
    if ic_block > 1:
        whole = np.pad(x, ((0, 0), (0, -w.in_channels % ic_block), (0, 0), (0, 0)))
        split = whole.reshape(w.batch, -1, ic_block, w.height, w.width)
        blocked_x = np.ascontiguousarray(split.transpose(0, 1, 3, 4, 2))
    blocked_bias = np.zeros(chunks * oc_block, w.dtype)
    blocked_bias[: w.out_channels] = bias

    data = te.placeholder(blocked_x.shape, w.dtype, name="data")
    filters = te.placeholder(packed.shape, w.dtype, name="weight")
    shift = te.placeholder((1, chunks, 1, 1, oc_block), w.dtype, name="bias")
    out = topi.nn.relu(topi.add(impl.compute(w, config, data, filters), shift))
    func = te.create_prim_func([data, filters, shift, out])
    scheduled = rules.schedule(func, target)
    assert scheduled is not None and scheduled.rule == impl.name
    lib = compiled(scheduled.func, target)
    shape = (w.batch, chunks, w.out_height, w.out_width, oc_block)
    result = tvm.runtime.tensor(np.full(shape, np.nan, w.dtype))
    arrays = (blocked_x, packed, blocked_bias.reshape(1, chunks, 1, 1, oc_block))
    lib["main"](*(tvm.runtime.tensor(array) for array in arrays), result)

    got = result.numpy().transpose(0, 1, 4, 2, 3)
    got = got.reshape(w.batch, chunks * oc_block, *shape[2:4])[:, : w.out_channels]
    expected = np.maximum(reference(w, x, weight) + bias.reshape(1, -1, 1, 1), 0)
    return float(np.abs(got - expected).max() / max(np.abs(expected).max(), 1e-30))


def check(w, name, target=TARGETS[0], ic_block=None, config=None, tolerance=2e-6):
    impl = BY_NAME[name]
    assert impl.supports(w, target)
    config = config or impl.fallback(w, target)
    if ic_block is None:
        ic_block = conv2d.oc_block_of(config)
    assert relative_error(w, impl, config, target, ic_block) < tolerance


@examples(6)
@given(
    st.integers(1, 2),
    st.sampled_from([1, 3, 5, 16]),
    st.tuples(st.integers(5, 13), st.integers(5, 19)),
    st.sampled_from([1, 8, 16, 20, 48]),
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.tuples(*[st.integers(0, 2)] * 4),
    st.integers(1, 2),
)
def test_direct_convolution_of_any_shape_is_right(n, ic, size, oc, kernel, strides, pad, dilation):
    w = Conv2dWorkload(n, ic, *size, oc, kernel, strides, pad, (dilation, dilation))
    if w.out_height > 0 and w.out_width > 0:
        check(w, conv2d.DIRECT, ic_block=16 if ic == 16 else 1)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: str(t.attrs["mcpu"]))
def test_direct_convolution_is_right_on_every_vector_width(target):
    w = Conv2dWorkload(1, 16, 15, 15, 32, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1))
    check(w, conv2d.DIRECT, target, ic_block=16)


@pytest.mark.parametrize("groups,channels", [(2, 32), (4, 16), (3, 12)])
def test_grouped_convolution_reads_only_its_group(groups, channels):
    w = Conv2dWorkload(
        1, channels, 9, 9, 2 * channels, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), groups
    )
    block = register_tile.channel_block(channels // groups, 16)
    check(w, conv2d.DIRECT, ic_block=block)


@pytest.mark.parametrize("channels_outer", [False, True])
def test_both_loop_orders_give_the_same_numbers(channels_outer):
    w = Conv2dWorkload(2, 32, 14, 14, 64, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1))
    knobs = dict(BY_NAME[conv2d.DIRECT].fallback(w, TARGETS[0]).knobs)
    knobs["channels_outer"] = option(channels_outer)
    check(w, conv2d.DIRECT, ic_block=16, config=conv2d.ConfigEntity(knobs))


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: str(t.attrs["mcpu"]))
@pytest.mark.parametrize(
    ("ic_block", "channels", "stride"), [(1, 3, 2), (16, 32, 1), (16, 32, 2), (16, 256, 1)]
)
def test_rows_of_a_task_are_padded_once(target, ic_block, channels, stride):
    """The weights of 256 channels are more than half of L2, and prefetched."""
    oc = 160 if channels == 256 else 32
    w = Conv2dWorkload(2, channels, 12, 9, oc, (3, 3), (stride,) * 2, (1, 1, 1, 1), (1, 1))
    knobs = dict(BY_NAME[conv2d.DIRECT].fallback(w, target).knobs)
    knobs |= {"rows": option(3), "channels_outer": option(False)}
    check(w, conv2d.DIRECT, target, ic_block=ic_block, config=conv2d.ConfigEntity(knobs))


def test_tasks_have_rows_as_caches_and_cores_allow():
    target = tvm.target.Target({"kind": "llvm", "mcpu": "znver5", "num-cores": 2})
    of_56 = Conv2dWorkload(1, 64, 56, 56, 64, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1))

    def rows(**changes):
        return conv2d.direct_fallback(replace(of_56, **changes), target).val("rows")

    assert rows() == 7  # eight tasks, of which seven would leave a core idle
    assert rows(in_channels=512) == 2  # what half of L2 holds
    assert rows(height=55) == 1 and rows(height=7) == 1
    assert rows(kernel=(1, 1), padding=(0, 0, 0, 0)) == 1  # nothing is read again


def test_convolutions_that_prefetch_their_next_tile_are_right():
    """On images larger than the L2 of the table's generic CPU, 256 KB."""
    w = Conv2dWorkload(1, 32, 50, 50, 32, (2, 2), (1, 1), (0, 0, 0, 0), (1, 1))
    check(w, conv2d.DIRECT, TARGETS[1], ic_block=8)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: str(t.attrs["mcpu"]))
@pytest.mark.parametrize("kernel,stride,size", [(3, 1, 14), (3, 2, 15), (5, 1, 7), (5, 2, 9)])
def test_depthwise_convolution_is_right(target, kernel, stride, size):
    pad = (kernel // 2,) * 4
    w = Conv2dWorkload(2, 48, size, size, 48, (kernel,) * 2, (stride,) * 2, pad, (1, 1), groups=48)
    check(w, depthwise.DIRECT, target)


def test_depthwise_convolution_takes_asymmetric_padding_and_odd_channels():
    w = Conv2dWorkload(1, 24, 11, 13, 24, (3, 3), (2, 2), (0, 1, 1, 0), (1, 1), groups=24)
    check(w, depthwise.DIRECT)


def test_last_tile_of_a_row_has_code_of_its_own_without_guards():
    w = Conv2dWorkload(1, 16, 17, 17, 48, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1))
    config = conv2d.direct_fallback(w, TARGETS[0])
    assert w.out_width % config.val("tile_ow")
    shapes = ((1, 1, 17, 17, 16), (48 // config.val("oc_block"), 1, 1, 1, 16, 16))
    data, weight = (te.placeholder(shape) for shape in shapes)
    out = BY_NAME[conv2d.DIRECT].compute(w, config, data, weight)
    # Relax has 64-bit indices, and TVM partitions no loop that has them.
    func = te.create_prim_func([data, weight, out], index_dtype_override="int64")
    scheduled = rules.schedule(func, TARGETS[0])
    mod = tvm.IRModule({"main": scheduled.func.with_attr("global_symbol", "main")})
    lower, _, _ = tvm.tirx.get_tir_pipeline("default")
    lowered = lower(tvm.tirx.transform.BindTarget(TARGETS[0].with_host(TARGETS[0]))(mod))

    guards = []

    def in_loops(loop, _):
        tvm_ffi.structural_walk(loop.body, (tvm.tirx.IfThenElse, guards.append))

    for _, func in lowered.functions_items():
        tvm_ffi.structural_visit(func.body, (tvm.tirx.For, in_loops))
    assert not guards


def flat_config(lanes, **knobs):
    """Knobs of register tiles of four pixels that run on from row to row."""
    knobs = {"oc_block": lanes, "tile_ow": 4, "channels_outer": True, "flat": True, **knobs}
    return conv2d.ConfigEntity({name: option(value) for name, value in knobs.items()})


@pytest.mark.parametrize("target", TARGETS[1:], ids=lambda t: str(t.attrs["mcpu"]))
@pytest.mark.parametrize(("stride", "ic_block"), [(1, 1), (2, 8)])
@pytest.mark.parametrize(("batch", "oc_chunks"), [(1, 2), (1, 3), (2, 2)])
def test_flat_register_tiles_run_on_from_row_to_row(target, stride, ic_block, batch, oc_chunks):
    lanes = Machine.from_target(target).lanes("float32")
    channels = (4 if batch > 1 else 5) * lanes  # of a batch, tiles divide the channels
    w = Conv2dWorkload(batch, 16, 9, 7, channels, (1, 1), (stride,) * 2, (0, 0, 0, 0), (1, 1))
    config = flat_config(lanes, oc_chunks=oc_chunks)
    check(w, conv2d.DIRECT, target, ic_block=ic_block, config=config)


@pytest.mark.parametrize("target", TARGETS[1:], ids=lambda t: str(t.attrs["mcpu"]))
@pytest.mark.parametrize(("stride", "batch"), [(1, 1), (2, 1), (1, 3)])
def test_parts_of_an_image_are_tasks_of_their_own(target, stride, batch):
    lanes = Machine.from_target(target).lanes("float32")
    w = Conv2dWorkload(batch, 16, 12, 8, 4 * lanes, (1, 1), (stride,) * 2, (0, 0, 0, 0), (1, 1))
    config = flat_config(lanes, oc_chunks=2, pixel_parts=3)
    check(w, conv2d.DIRECT, target, config=config)


@pytest.mark.parametrize("target", TARGETS[1:], ids=lambda t: str(t.attrs["mcpu"]))
@pytest.mark.parametrize(("stride", "batch", "ic_block"), [(1, 1, 8), (2, 2, 8), (1, 1, 1)])
def test_inputs_are_copied_with_channel_blocks_further_apart(target, stride, batch, ic_block):
    lanes = Machine.from_target(target).lanes("float32")
    w = Conv2dWorkload(batch, 24, 12, 9, 4 * lanes, (1, 1), (stride,) * 2, (0, 0, 0, 0), (1, 1))
    config = flat_config(lanes, oc_chunks=2, spread=True)
    check(w, conv2d.DIRECT, target, config=config, ic_block=ic_block)


@pytest.mark.parametrize(
    ("channels", "size", "is_spread"),
    [(256, 64, True), (256, 80, True), (256, 60, False), (64, 64, False), (256, 16, False)],
)
def test_inputs_whose_channel_blocks_share_a_set_of_the_cache_are_copied(channels, size, is_spread):
    w = Conv2dWorkload(1, channels, size, size, 128, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1))
    machine = replace(Machine.from_target(TARGETS[1]), l2_bytes=1 << 19, l3_bytes=1 << 25)
    assert conv2d.crowds_caches(w, machine.lanes("float32"), machine) == is_spread


def test_sixteen_registers_run_pointwise_tiles_on_from_row_to_row():
    w = Conv2dWorkload(1, 512, 7, 7, 2048, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1))
    for pointwise in (w, replace(w, in_channels=64, out_channels=256, height=56, width=56)):
        config = conv2d.direct_fallback(pointwise, TARGETS[1])
        assert config.val("flat", False)
        tile, vectors = config.val("tile_ow"), config.val("oc_chunks")
        assert tile * vectors + min(tile, vectors) + 1 <= 16
    for other in (
        replace(w, height=2048, width=2048),  # its inputs would be read from memory for each panel
        replace(w, kernel=(3, 3), padding=(1, 1, 1, 1)),
    ):
        assert not conv2d.direct_fallback(other, TARGETS[1]).val("flat")
    many_registers = tvm.target.Target({"kind": "llvm", "mcpu": "skylake-avx512"})
    assert not conv2d.direct_fallback(w, many_registers).val("flat")


def test_images_of_few_channels_are_cut_into_parts_for_many_cores():
    w = Conv2dWorkload(1, 24, 56, 56, 144, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1))
    one = replace(Machine.from_target(TARGETS[1]), num_cores=1)
    assert conv2d.flat_tile(w, 18, one)[0] == 1
    parts, tile, vectors = conv2d.flat_tile(w, 18, replace(one, num_cores=8))
    assert parts * 18 // vectors >= 8 * conv2d.TASKS_PER_CORE
    assert 56 * 56 % (parts * tile) == 0
    assert 18 % vectors == 0


@pytest.mark.parametrize(
    "knobs",
    [
        {"tile_ic": (4, 4), "tile_oc": (2, 16), "tile_ow": (2, 7), "unroll_kw": True},
        {"tile_ic": (-1, 8), "tile_oc": (-1, 8), "tile_ow": (-1, 5), "unroll_kw": False},
        {"tile_ic": (16, 1), "tile_oc": (32, 1), "tile_ow": (14, 1), "unroll_kw": False},
    ],
)
def test_template_builds_any_config_of_its_space(knobs):
    w = Conv2dWorkload(1, 16, 14, 14, 32, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1))
    config = conv2d.ConfigEntity(
        {
            name: conv2d_template.split(*value)
            if isinstance(value, tuple)
            else conv2d_template.option(value)
            for name, value in knobs.items()
        }
    )
    check(w, conv2d_template.NAME, ic_block=knobs["tile_ic"][1], config=config)


@pytest.mark.parametrize("tile_oh,tile_ow", [(1, 14), (2, 7), (2, 5)])
def test_template_tiles_rows_of_pointwise_convolutions(tile_oh, tile_ow):
    w = Conv2dWorkload(1, 16, 14, 14, 32, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1))
    config = conv2d.ConfigEntity(
        {
            "tile_ic": conv2d_template.split(1, 16),
            "tile_oc": conv2d_template.split(2, 16),
            "tile_ow": conv2d_template.split(-1, tile_ow),
            "tile_oh": conv2d_template.option(tile_oh),
        }
    )
    check(w, conv2d_template.NAME, ic_block=16, config=config)


@pytest.mark.parametrize("target", TARGETS[:2], ids=lambda t: str(t.attrs["mcpu"]))
@pytest.mark.parametrize(
    ("name", "workload"),
    [
        (conv2d.DIRECT, Conv2dWorkload(1, 16, 14, 14, 64, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1))),
        (
            "conv2d_winograd.x86",
            Conv2dWorkload(
                *(1, 64, 14, 14, 64, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)), constant_weight=True
            ),
        ),
        (
            depthwise.DIRECT,
            Conv2dWorkload(
                *(1, 192, 28, 28, 192, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 192),
                constant_weight=True,
            ),
        ),
    ],
)
def test_many_cores_have_more_tasks_than_two(name, workload, target):
    def on(cores):
        return tvm.target.Target({**target.attrs, "kind": "llvm", "num-cores": cores})

    config = BY_NAME[name].fallback(workload, on(64))
    assert config.dumps() != BY_NAME[name].fallback(workload, on(2)).dumps()
    check(workload, name, on(64), config=config, tolerance=3e-5)


@pytest.mark.parametrize("target", TARGETS[:2], ids=lambda t: str(t.attrs["mcpu"]))
def test_rows_of_large_images_may_be_copied(target):
    w = Conv2dWorkload(2, 64, 5, 19, 48, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1))
    knobs = conv2d.direct_fallback(w, target).knobs
    changed = {"channels_outer": False, "flat": False, "pixel_parts": 1, "spread": True}
    changed = {name: option(value) for name, value in changed.items()}
    config = conv2d.ConfigEntity({**knobs, "tile_ow": option(4), **changed})
    check(w, conv2d.DIRECT, target, ic_block=16, config=config)


def test_rows_of_images_that_leave_l3_are_copied_once():
    """1024 channels at 64x64 lie in one set of the caches, and were read for each tile of 32."""
    target = tvm.target.Target({"kind": "llvm", "mcpu": "skylake-avx512", "num-cores": 2})
    w = Conv2dWorkload(1, 1024, 64, 64, 256, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1))
    config = conv2d.direct_fallback(w, target)
    assert not config.val("channels_outer") and config.val("spread")
    config = conv2d.direct_fallback(replace(w, height=16, width=16), target)
    assert config.val("rows") == 8 and not config.val("spread")
