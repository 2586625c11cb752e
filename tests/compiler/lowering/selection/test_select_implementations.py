"""Which layouts the selection gives a function, and that the numbers stay the same."""

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax.op import nn

from compiler import target as targets
from compiler.lowering.selection.select_implementations import select_implementations

TARGET = targets.parse("llvm -mcpu=x86-64-v3")
rng = np.random.default_rng(0)


def weight(*shape):
    return relax.const(rng.standard_normal(shape).astype("float32"))


def function(build, shape=(1, 16, 8, 8)):
    """A module whose main is `build(emit, x)`."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(build(builder.emit, x))
        builder.emit_func_output(out)
    return builder.get()


def conversions(mod, **options):
    """Layout conversions that the selection leaves in main, and what main computes with it."""
    selected = select_implementations(mod, "main", TARGET, **options)
    relax.analysis.well_formed(selected)
    names = []
    relax.analysis.post_order_visit(
        selected["main"],
        lambda e: (
            names.append(e.args[0].name_hint)
            if isinstance(e, relax.Call)
            and isinstance(e.op, tvm.ir.Op)
            and e.op.name == "relax.call_tir"
            else None
        ),
    )
    same_numbers(mod, selected)
    return sum(name.startswith(("_block", "layout_unblock")) for name in names)


def same_numbers(before, after):
    shape = [int(d) for d in before["main"].params[0].ty.shape.values]
    x = tvm.runtime.tensor(rng.standard_normal(shape).astype("float32"))
    results = []
    for mod in (before, after):
        vm = relax.VirtualMachine(tvm.compile(mod, tvm.target.Target({"kind": "llvm"})), tvm.cpu())
        results.append(vm["main"](x).numpy())
    assert np.isfinite(results[0]).all()
    scale = np.abs(results[0]).max()
    np.testing.assert_allclose(results[1], results[0], rtol=1e-4, atol=1e-5 * scale)


def test_a_chain_of_convolutions_is_converted_at_its_ends_only():
    def build(emit, x):
        y = emit(nn.conv2d(x, weight(32, 16, 3, 3), padding=1))
        y = emit(nn.relu(emit(relax.op.add(y, weight(1, 32, 1, 1)))))
        y = emit(nn.max_pool2d(y, (2, 2), (2, 2)))
        z = emit(nn.conv2d(y, weight(32, 32, 1, 1)))
        return nn.relu(emit(relax.op.add(z, y)))

    assert conversions(function(build)) == 2


def test_few_input_channels_are_read_in_place():
    def build(emit, x):
        y = emit(nn.conv2d(x, weight(16, 3, 3, 3), strides=2))
        return relax.op.mean(y, [2, 3])

    assert conversions(function(build, (1, 3, 9, 9))) == 0


def test_spatial_mean_and_reshape_leave_the_blocked_layout_for_free():
    def build(emit, x):
        y = emit(nn.conv2d(x, weight(16, 3, 3, 3)))
        y = emit(relax.op.mean(y, [2, 3], keepdims=True))
        return relax.op.reshape(y, (1, 16))

    assert conversions(function(build, (1, 3, 9, 9))) == 0


@pytest.mark.parametrize("channels", [12, 20, 24])
def test_channels_that_no_block_divides_stay_blocked_and_right(channels):
    def build(emit, x):
        y = emit(nn.conv2d(x, weight(channels, 3, 3, 3), padding=1))
        y = emit(relax.op.add(y, weight(1, channels, 1, 1)))
        y = emit(nn.silu(emit(relax.op.divide(y, weight(channels, 1, 1)))))
        y = emit(nn.conv2d(y, weight(channels, 1, 3, 3), padding=1, groups=channels))
        z = emit(nn.conv2d(y, weight(channels, channels, 1, 1)))
        return relax.op.mean(emit(relax.op.add(z, y)), [2, 3])

    assert conversions(function(build, (2, 3, 7, 7))) <= 1


def test_what_could_make_infinities_in_nobodys_channels_runs_plain():
    def build(emit, x):
        y = emit(nn.conv2d(x, weight(12, 3, 3, 3), padding=1))
        y = emit(relax.op.log(emit(relax.op.add(emit(relax.op.abs(y)), relax.const(1.0)))))
        return nn.conv2d(y, weight(8, 12, 1, 1))

    conversions(function(build, (1, 3, 7, 7)))


def test_concatenation_along_channels_stays_blocked_where_a_block_divides_all_parts():
    def build(emit, x):
        a = emit(nn.conv2d(x, weight(16, 3, 1, 1)))
        b = emit(nn.conv2d(x, weight(32, 3, 1, 1)))
        y = emit(relax.op.concat([a, b], axis=1))
        return relax.op.mean(emit(nn.conv2d(y, weight(16, 48, 1, 1))), [2, 3])

    assert conversions(function(build, (1, 3, 7, 7))) == 0


@pytest.mark.parametrize(
    ("axes", "begins", "ends", "strides", "changes"),
    [
        ([1], [8], [24], None, 0),
        ([1, 3], [-8, 1], [100, -1], None, 0),
        ([2], [3], [5], [1], 0),
        ([1], [4], [20], None, 2),
        ([2], [0], [7], [2], 2),
    ],
)
def test_slices_of_whole_blocks_stay_blocked(axes, begins, ends, strides, changes):
    def build(emit, x):
        y = emit(nn.conv2d(x, weight(24, 3, 1, 1)))
        y = emit(relax.op.strided_slice(y, axes, begins, ends, strides))
        y = emit(nn.conv2d(y, weight(16, int(y.ty.shape[1]), 1, 1)))
        return relax.op.mean(y, [2, 3])

    assert conversions(function(build, (1, 3, 7, 7))) == changes


def test_broadcasts_over_space_and_channels_stay_blocked():
    def build(emit, x):
        y = emit(nn.conv2d(x, weight(16, 3, 1, 1)))
        gate = emit(relax.op.sigmoid(emit(relax.op.mean(y, [2, 3], keepdims=True))))
        y = emit(relax.op.multiply(y, gate))
        y = emit(relax.op.multiply(y, relax.const(2.0)))
        y = emit(relax.op.add(y, weight(7, 7)))
        return relax.op.mean(y, [2, 3])

    assert conversions(function(build, (1, 3, 7, 7))) == 0


def test_paddings_and_resized_rows_stay_blocked():
    def build(emit, x):
        y = emit(nn.conv2d(x, weight(16, 16, 1, 1)))
        y = emit(nn.pad(y, [0, 0, 0, 0, 1, 2, 2, 1], "reflect"))
        y = emit(nn.pad(y, [0, 0, 0, 0, 1, 0, 0, 3], "constant", 2.0))
        y = emit(relax.op.repeat(y, 2, 3))
        y = emit(relax.op.take(y, relax.const(np.array([1, 4, 4, 0, 9])), 2, mode="clip"))
        return relax.op.variance(y, [2, 3])

    assert conversions(function(build)) == 1


def test_a_prelu_with_constant_slopes_stays_blocked():
    def build(emit, x):
        y = emit(nn.prelu(emit(nn.conv2d(x, weight(12, 16, 1, 1))), weight(12)))
        y = emit(nn.prelu(emit(nn.conv2d(y, weight(16, 12, 1, 1))), weight(1)))
        return relax.op.mean(y, [2, 3])

    assert conversions(function(build)) == 1


def test_a_chain_over_signals_is_converted_at_its_ends_only():
    def build(emit, x):
        y = emit(nn.conv1d(x, weight(32, 16, 3), padding=2, dilation=2))
        y = emit(nn.relu(emit(relax.op.add(y, weight(32, 1)))))
        y = emit(nn.max_pool1d(y, 3, 2, 1))
        z = emit(nn.conv1d(emit(nn.pad(y, [0, 0, 0, 0, 2, 0])), weight(32, 32, 3)))
        z = emit(nn.avg_pool1d(emit(relax.op.multiply(z, y)), 2, 2))
        left = emit(relax.op.strided_slice(z, [1, 2], [0, 3], [16, 11]))
        return relax.op.concat([left, left], 2)

    assert conversions(function(build, (2, 16, 60))) == 2


def test_a_chain_over_volumes_is_converted_at_its_ends_only():
    def build(emit, x):
        y = emit(nn.conv3d(x, weight(16, 8, 3, 3, 3), padding=1))
        y = emit(relax.op.add(emit(nn.prelu(y, weight(16))), weight(1, 16, 1, 1, 1)))
        z = emit(nn.conv3d(y, weight(16, 16, 1, 3, 3), padding=(0, 1, 1)))
        y = emit(nn.max_pool3d(emit(relax.op.add(z, y)), (3, 2, 2), (2, 2, 2), (1, 0, 0)))
        y = emit(nn.avg_pool3d(emit(relax.op.concat([y, y], 1)), (2, 3, 3), (1, 1, 1), (0, 1, 1)))
        return relax.op.add(y, emit(relax.op.mean(y, [2, 3, 4], keepdims=True)))

    for batch in (1, 2):
        assert conversions(function(build, (batch, 8, 5, 8, 8))) <= 3


def test_grouped_and_dilated_convolutions_are_lowered():
    def build(emit, x):
        y = emit(nn.conv2d(x, weight(32, 4, 3, 3), padding=2, dilation=2, groups=4))
        return nn.conv2d(y, weight(16, 32, 3, 3), strides=(2, 1))

    conversions(function(build))


@pytest.mark.parametrize("axis", [0, 1])
def test_entries_of_a_matrix_are_taken_as_they_lie(axis):
    index = relax.const(np.array([2, 0]))
    mod = function(lambda emit, x: emit(relax.op.take(x, index, axis, mode="clip")), (5, 4))
    assert conversions(mod) == 0


def test_keeping_layouts_gives_every_value_a_plain_form():
    def build(emit, x):
        y = emit(nn.conv2d(x, weight(16, 16, 3, 3)))
        return nn.conv2d(emit(nn.relu(y)), weight(16, 16, 1, 1))

    assert conversions(function(build), keep_layouts=True) == 4


def test_a_disabled_implementation_is_not_chosen():
    def build(emit, x):
        return nn.conv2d(x, weight(64, 64, 3, 3), padding=1)

    mod = function(build, (1, 64, 28, 28))
    for disabled, expected in (((), True), (("conv2d_winograd.x86",), False)):
        selected = select_implementations(mod, "main", TARGET, disabled=disabled)
        assert ("winograd" in selected.script()) is expected
