"""1-D, 3-D and transposed convolutions, grouped and depthwise templates, against float64 numpy."""

import numpy as np
import pytest
import tvm
from tvm import relax

from compiler.autotvm.convolutions import convolution
from compiler.lowering.build import build
from compiler.runtime import graph_executor
from schedules.config import ConfigEntity
from schedules.x86.machine.host import host_name

HOST = tvm.target.Target({"kind": "llvm", "mcpu": host_name()})


def values(seed, *shape):
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype("float32")


def run(op, x, weight, constant=True, **attrs):
    """Output and report of a library with op(x, weight) and a relu behind."""
    builder = relax.BlockBuilder()
    data = relax.Var("data", relax.TensorType(x.shape, "float32"))
    kernel = relax.Var("kernel", relax.TensorType(weight.shape, "float32"))
    inputs = {"data": x} if constant else {"data": x, "kernel": weight}
    with builder.function("main", [data] if constant else [data, kernel]):
        with builder.dataflow():
            conv = builder.emit(op(data, relax.const(weight) if constant else kernel, **attrs))
            out = builder.emit_output(relax.op.nn.relu(conv))
        builder.emit_func_output(out)
    library = build(builder.get(), HOST)
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.run(**inputs)
    return module.get_output(0).numpy(), library.report


def assert_close(result, expected):
    assert result.shape == expected.shape
    np.testing.assert_allclose(result, np.maximum(expected, 0), atol=1e-4 * np.abs(expected).max())


def transposed(x, weight, strides, padding, beyond):
    """Transposed convolution of (N, I, *spatial) with (I, O, *kernel) in float64, tap by tap."""
    rank = len(strides)
    kernel = weight.shape[2:]
    full = [(n - 1) * s + k for n, s, k in zip(x.shape[2:], strides, kernel)]
    room = [n + b for n, b in zip(full, beyond)]
    out = np.zeros((x.shape[0], weight.shape[1], *room))
    for tap in np.ndindex(*kernel):
        part = np.einsum("ni...,io->no...", x.astype("f8"), weight[(..., *tap)].astype("f8"))
        places = tuple(
            slice(t, t + (n - 1) * s + 1, s) for t, n, s in zip(tap, x.shape[2:], strides)
        )
        out[(slice(None), slice(None), *places)] += part
    crop = tuple(slice(padding[i], room[i] - padding[rank + i]) for i in range(rank))
    return out[(slice(None), slice(None), *crop)]


@pytest.mark.parametrize(
    "channels,kernel,strides,padding,beyond",
    [
        ((8, 16), (4, 4), (2, 2), (1, 1, 1, 1), (0, 0)),
        ((5, 3), (3, 3), (2, 2), (1, 0, 0, 1), (1, 1)),
        ((4, 8), (3, 2), (1, 3), (0, 0, 1, 0), (0, 2)),
        ((4, 32), (2, 2), (3, 3), (0, 1, 0, 0), (0, 0)),
        ((4, 8), (3, 3), (1, 1), (2, 2, 2, 2), (0, 0)),
        ((4, 8), (2, 2), (1, 1), (3, 1, 3, 3), (0, 0)),
    ],
)
def test_transposed_convolutions_are_right(channels, kernel, strides, padding, beyond):
    x = values(0, 2, channels[0], 7, 9)
    weight = values(1, *channels, *kernel)
    attrs = {"strides": strides, "padding": padding, "output_padding": beyond}
    result, report = run(relax.op.nn.conv2d_transpose, x, weight, **attrs)
    assert_close(result, transposed(x, weight, strides, padding, beyond))
    assert any(kernel.implementation.startswith("conv2d") for kernel in report.kernels)


def test_weights_of_a_transposed_convolution_may_come_at_run_time():
    x, weight = values(0, 1, 4, 5, 5), values(1, 4, 8, 3, 3)
    attrs = {"strides": (2, 2), "padding": (1, 1, 1, 1), "output_padding": (1, 1)}
    result, _ = run(relax.op.nn.conv2d_transpose, x, weight, constant=False, **attrs)
    assert_close(result, transposed(x, weight, (2, 2), (1, 1, 1, 1), (1, 1)))


@pytest.mark.parametrize("groups,channels", [(1, (16, 24)), (4, (16, 32)), (16, (16, 16))])
def test_convolutions_of_signals_are_right(groups, channels):
    x, weight = values(0, 2, channels[0], 33), values(1, channels[1], channels[0] // groups, 5)
    attrs = {"strides": 2, "padding": (1, 2), "dilation": 2, "groups": groups}
    result, report = run(relax.op.nn.conv1d, x, weight, **attrs)
    assert_close(result, convolution(x, weight, (2,), (1, 2), (2,)))
    assert not report.unscheduled


def test_transposed_convolutions_of_signals_are_right():
    x, weight = values(0, 2, 6, 11), values(1, 6, 16, 4)
    attrs = {"strides": 2, "padding": (1, 1), "output_padding": 1}
    result, _ = run(relax.op.nn.conv1d_transpose, x, weight, **attrs)
    assert_close(result, transposed(x, weight, (2,), (1, 1), (1,)))


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("layout", ["NCDHW", "NDHWC"])
def test_convolutions_of_volumes_are_right(layout, groups):
    x, weight = values(0, 1, 8, 5, 6, 7), values(1, 16, 8 // groups, 3, 2, 3)
    strides, padding, dilation = (1, 2, 1), (1, 0, 1, 1, 1, 0), (1, 1, 2)
    expected = convolution(x, weight, strides, padding, dilation)
    kernel_layout = "OIDHW"
    if layout == "NDHWC":
        kernel_layout = "DHWIO"
        x, weight = x.transpose(0, 2, 3, 4, 1), weight.transpose(2, 3, 4, 1, 0)
        expected = expected.transpose(0, 2, 3, 4, 1)
    result, report = run(
        relax.op.nn.conv3d,
        np.ascontiguousarray(x),
        np.ascontiguousarray(weight),
        strides=strides,
        padding=padding,
        dilation=dilation,
        groups=groups,
        data_layout=layout,
        kernel_layout=kernel_layout,
    )
    assert_close(result, expected)
    by_image = layout == "NCDHW" and groups == 1
    implementation = "conv2d" if by_image else f"conv3d_{layout.lower()}.x86"
    assert any(k.implementation.startswith(implementation) for k in report.kernels)


@pytest.mark.parametrize(
    "channels,kernel,strides,padding,beyond",
    [
        ((16, 8), (2, 2, 2), (2, 2, 2), (0,) * 6, (0, 0, 0)),
        ((8, 3), (3, 4, 3), (1, 2, 2), (1, 1, 0, 0, 1, 1), (0, 1, 0)),
        ((3, 16), (3, 3, 2), (2, 1, 3), (1, 0, 1, 1, 2, 0), (1, 0, 2)),
    ],
)
def test_transposed_convolutions_of_volumes_are_right(channels, kernel, strides, padding, beyond):
    x, weight = values(0, 2, channels[0], 3, 5, 6), values(1, *channels, *kernel)
    attrs = {"strides": strides, "padding": padding, "output_padding": beyond}
    result, report = run(relax.op.nn.conv3d_transpose, x, weight, **attrs)
    assert_close(result, transposed(x, weight, strides, padding, beyond))
    assert any(kernel.implementation.startswith("conv2d") for kernel in report.kernels)


@pytest.mark.parametrize("size", [(16, 16), (15, 17)])
@pytest.mark.parametrize("dilation", [(2, 2), (2, 3)])
def test_dilated_convolutions_are_right_phase_by_phase(size, dilation):
    x, weight = values(0, 1, 128, *size), values(1, 128, 128, 3, 3)
    attrs = {"padding": dilation, "dilation": dilation}
    with tvm.transform.PassContext(opt_level=3):  # below it there is no Winograd
        result, report = run(relax.op.nn.conv2d, x, weight, **attrs)
    assert_close(result, convolution(x, weight, (1, 1), dilation * 2, dilation))
    assert any("winograd" in kernel.implementation for kernel in report.kernels)


@pytest.mark.parametrize(
    "size,dilation,padding,groups,taps",
    [
        ((10, 10), (12, 12), (12, 12, 12, 12), 1, 1),
        ((1, 6), (1, 1), (1, 1, 1, 1), 16, 3),
        ((4, 20), (5, 1), (5, 0, 5, 0), 1, 3),
        ((4, 20), (5, 1), (0, 0, 10, 0), 1, 3),
    ],
)
def test_taps_that_only_meet_padding_are_left_out(size, dilation, padding, groups, taps):
    x, weight = values(0, 1, 16, *size), values(1, 16, 16 // groups, 3, 3)
    attrs = {"padding": padding, "dilation": dilation, "groups": groups}
    with tvm.transform.PassContext(opt_level=2):  # without blocked layouts
        result, report = run(relax.op.nn.conv2d, x, weight, **attrs)
    assert_close(result, convolution(x, weight, (1, 1), padding, dilation))
    convolutions = [k for k in report.kernels if "conv2d" in k.implementation]
    macs = 16 * (16 // groups) * taps * result[0, 0].size
    assert sum(kernel.flops for kernel in convolutions) < 2.3 * macs


def config(ic, oc, ow, unroll_kw):
    rows = [["tile_ic", "sp", [-1, ic]], ["tile_oc", "sp", [-1, oc]], ["tile_ow", "sp", [-1, ow]]]
    rows.append(["unroll_kw", "ot", unroll_kw])
    return ConfigEntity.from_entity(rows, "topi:test.log:1", False, 1e-6)


def under(monkeypatch, task, chosen):
    """Every workload of `task` has that config."""
    from compiler.lowering.selection.schedule_source import ScheduleSource

    def query(self, target, workload):
        return chosen if workload[0] == task else None

    monkeypatch.setattr(ScheduleSource, "autotvm_query", query)


@pytest.mark.parametrize(
    "groups,task,chosen",
    [
        (4, "group_conv2d_nchw.x86", config(4, 8, 5, True)),
        (4, "group_conv2d_nchw.x86", config(16, 32, 4, False)),
        (16, "depthwise_conv2d_NCHWc.x86", config(8, 4, 3, True)),
        (16, "depthwise_conv2d_NCHWc.x86", config(1, 16, 11, False)),
        (16, "depthwise_conv2d_NCHWc.x86", config(4, 1, 2, False)),
        (1, "conv2d_NCHWc.x86", config(1, 1, 4, True)),
    ],
)
def test_a_record_of_any_blocks_is_applied_and_right(monkeypatch, groups, task, chosen):
    under(monkeypatch, task, chosen)
    x, weight = values(0, 2, 16, 9, 11), values(1, 16 if groups == 16 else 32, 16 // groups, 3, 3)
    attrs = {"padding": (1, 1, 1, 1), "groups": groups}
    result, report = run(relax.op.nn.conv2d, x, weight, **attrs)
    assert_close(result, convolution(x, weight, (1, 1), (1, 1, 1, 1), (1, 1)))
    assert chosen.source in {kernel.source for kernel in report.kernels}


@pytest.mark.parametrize("chosen", [config(2, 8, 4, True), config(8, 1, 3, False)])
@pytest.mark.parametrize("groups", [1, 2])
def test_a_record_of_a_volume_is_applied_and_right(monkeypatch, groups, chosen):
    under(monkeypatch, "conv3d_ncdhw.x86", chosen)
    x, weight = values(0, 1, 8, 4, 5, 6), values(1, 8, 8 // groups, 3, 3, 3)
    attrs = {"padding": (1, 1, 1, 1, 1, 1), "groups": groups}
    result, report = run(relax.op.nn.conv3d, x, weight, **attrs)
    assert_close(result, convolution(x, weight, (1, 1, 1), (1,) * 6, (1, 1, 1)))
    assert chosen.source in {kernel.source for kernel in report.kernels}


def test_a_record_of_a_transposed_convolution_is_one_of_its_dilated_form(monkeypatch):
    from compiler.lowering.selection.schedule_source import ScheduleSource

    chosen = config(4, 8, 4, False)
    asked = []

    def query(self, target, workload):
        if workload[0] != "conv2d_NCHWc.x86":
            return None
        asked.append(workload)
        return chosen if workload[1][1] == (1, 8, 13, 15) else None

    monkeypatch.setattr(ScheduleSource, "autotvm_query", query)
    x, weight = values(0, 1, 8, 5, 6), values(1, 8, 16, 4, 4)
    attrs = {"strides": (2, 2), "padding": (1, 1, 1, 1)}
    result, report = run(relax.op.nn.conv2d_transpose, x, weight, **attrs)
    assert_close(result, transposed(x, weight, (2, 2), (1, 1, 1, 1), (0, 0)))
    assert chosen.source in {kernel.source for kernel in report.kernels}
    _, data, kernel, strides, padding, *_ = asked[0]
    assert (data[1], kernel[1]) == ((1, 8, 13, 15), (16, 8, 4, 4))
    assert (strides, padding) == ((1, 1), (0, 0))


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("groups,channels", [(2, (6, 10)), (33, (66, 99))])
def test_groups_of_odd_numbers_of_channels_are_right(groups, channels, constant):
    x, weight = values(0, 1, channels[0], 5, 6), values(1, channels[1], channels[0] // groups, 3, 3)
    attrs = {"padding": (1, 0, 1, 1), "groups": groups}
    result, report = run(relax.op.nn.conv2d, x, weight, constant, **attrs)
    assert_close(result, convolution(x, weight, (1, 1), (1, 0, 1, 1), (1, 1)))
    assert not report.unscheduled
