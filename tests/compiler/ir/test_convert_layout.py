"""Tests of convolutions over NHWC tensors that become ones over NCHW tensors."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from compiler import auto_scheduler, relay
from compiler import target as targets
from compiler.auto_scheduler.search.templates import TemplateSearch
from compiler.ir.convert_layout import CHANNELS_LAST, convert_layout
from compiler.records.auto_scheduler.record import Record, save_records
from compiler.records.auto_scheduler.template import Template

OPS = relax.op
SHAPE = ((1, 6, 8, 16), "float32")
LAYOUTS = {"data_layout": "NHWC", "kernel_layout": "HWIO"}


def const(*shape):
    values = np.random.default_rng(sum(shape)).normal(size=shape).astype("float32")
    return relax.const(values / np.sqrt(values.size / shape[-1]).astype("float32"))


def conv(b, x, channels, size=3, **attrs):
    weight = const(size, size, int(x.ty.shape[3]), channels)
    options = {"padding": [size // 2] * 4, **LAYOUTS, **attrs}
    return b.emit(OPS.nn.conv2d(x, weight, **options))


def chain(b, x):
    y = b.emit(OPS.nn.relu(b.emit(OPS.add(conv(b, x, 8), const(8)))))
    y = b.emit(OPS.nn.max_pool2d(y, (2, 2), (2, 2), layout="NHWC"))
    return conv(b, y, 16, 1)


def residual(b, x):
    y = b.emit(OPS.add(conv(b, x, 16), const(1, 1, 16)))
    y = b.emit(OPS.add(y, x))
    gate = b.emit(OPS.mean(y, [1, 2], keepdims=True))
    y = b.emit(OPS.multiply(y, b.emit(OPS.sigmoid(conv(b, gate, 16, 1)))))
    return OPS.mean(y, [1, 2])


def joined(b, x):
    wide = b.emit(OPS.concat([conv(b, x, 8), conv(b, x, 4, 1)], axis=3))
    tall = b.emit(OPS.concat([wide, b.emit(OPS.clip(wide, -0.5, 0.5))], axis=-3))
    padded = b.emit(OPS.nn.pad(tall, [0, 0, 1, 2, 3, 4, 0, 0], "constant", 1.5))
    return conv(b, padded, 4)


def depthwise(b, x):
    y = b.emit(OPS.multiply(conv(b, x, 16), relax.const(np.float32(2))))
    weight = const(3, 3, 16, 1)
    options = {"data_layout": "NHWC", "kernel_layout": "HWOI", "groups": 16, "strides": 2}
    return OPS.nn.conv2d(y, weight, **options)


def pooled(b, x):
    y = b.emit(OPS.nn.avg_pool2d(conv(b, x, 8), (3, 3), (2, 2), (1, 0, 1, 2), layout="NHWC"))
    y = b.emit(OPS.nn.adaptive_avg_pool2d(y, (1, 1), layout="NHWC"))
    return OPS.reshape(y, (1, 8))


@pytest.mark.parametrize(
    ("body", "changes"), [(chain, 2), (residual, 1), (joined, 2), (depthwise, 2), (pooled, 1)]
)
def test_layouts_change_at_the_edges_alone(body, changes, build, operators, run, rng):
    mod = build(body, x=SHAPE)
    after = convert_layout(mod, "main")
    assert operators(after)["permute_dims"] == changes
    assert 'layout="NHWC"' not in after.script()
    data = rng.normal(size=SHAPE[0]).astype("float32")
    expected = run(mod, data)
    np.testing.assert_allclose(run(after, data), expected, rtol=1e-4, atol=1e-5)
    back = convert_layout(after, "main", CHANNELS_LAST)
    assert operators(back)["permute_dims"] == 0
    assert "NCHW" not in back.script()
    np.testing.assert_allclose(run(back, data), expected, rtol=1e-4, atol=1e-5)


def test_a_transposed_convolution_is_converted_too(build, operators, run, rng):
    """TVM itself compiles it over NCHW tensors alone."""
    weight = rng.normal(size=(3, 3, 16, 4)).astype("float32")
    options = {"strides": 2, "output_padding": 1, "padding": 1}

    def channels_last(b, x):
        return OPS.nn.conv2d_transpose(x, relax.const(weight), **LAYOUTS, **options)

    def channels_first(b, x):
        first = b.emit(OPS.permute_dims(x, [0, 3, 1, 2]))
        plain = relax.const(np.ascontiguousarray(weight.transpose(2, 3, 0, 1)))
        product = b.emit(OPS.nn.conv2d_transpose(first, plain, **options))
        return OPS.permute_dims(product, [0, 2, 3, 1])

    after = convert_layout(build(channels_last, x=SHAPE), "main")
    assert operators(after) == {"permute_dims": 2, "nn.conv2d_transpose": 1}
    data = rng.normal(size=SHAPE[0]).astype("float32")
    expected = run(build(channels_first, x=SHAPE), data)
    np.testing.assert_allclose(run(after, data), expected, rtol=1e-4, atol=1e-5)


def test_who_needs_channels_last_gets_them_once(build, operators, run, rng):
    def body(b, x):
        y = conv(b, x, 8)
        some = b.emit(OPS.nn.softmax(y, -1))
        return OPS.add(some, b.emit(OPS.cumsum(y, 3)))

    mod = build(body, x=SHAPE)
    after = convert_layout(mod, "main")
    assert operators(after)["permute_dims"] == 2
    data = rng.normal(size=SHAPE[0]).astype("float32")
    np.testing.assert_allclose(run(after, data), run(mod, data), rtol=1e-4, atol=1e-5)


def test_permutations_around_operators_vanish(build, operators, run, rng):
    def body(b, x):
        y = b.emit(OPS.nn.conv2d(x, const(8, 6, 3, 3)))
        y = b.emit(OPS.permute_dims(y, [0, 2, 3, 1]))
        y = b.emit(OPS.nn.relu(b.emit(OPS.add(y, const(8)))))
        y = b.emit(OPS.permute_dims(y, [0, 3, 1, 2]))
        return OPS.nn.conv2d(y, const(4, 8, 1, 1))

    mod = build(body, x=SHAPE)
    after = convert_layout(mod, "main")
    assert "permute_dims" not in operators(after)
    data = rng.normal(size=SHAPE[0]).astype("float32")
    np.testing.assert_allclose(run(after, data), run(mod, data), rtol=1e-4, atol=1e-5)


def test_a_weight_that_is_an_input_is_permuted(build, operators, run, rng):
    def body(b, x, w):
        return OPS.nn.conv2d(x, w, **LAYOUTS)

    mod = build(body, x=SHAPE, w=((3, 3, 16, 4), "float32"))
    after = convert_layout(mod, "main")
    assert operators(after)["permute_dims"] == 3
    data = [rng.normal(size=shape).astype("float32") for shape in (SHAPE[0], (3, 3, 16, 4))]
    np.testing.assert_allclose(run(after, *data), run(mod, *data), rtol=1e-4, atol=1e-5)


def test_a_function_over_nchw_tensors_stays_as_it_is(build):
    mod = build(lambda b, x: OPS.nn.conv2d(x, const(8, 6, 3, 3)), x=SHAPE)
    assert convert_layout(mod, "main").same_as(mod)


def implementations(function, **context):
    with tvm.transform.PassContext(opt_level=3, **context):
        library = relay.build(function, "llvm -mcpu=x86-64-v3")
    return [kernel.implementation for kernel in library.report.kernels]


def test_a_relay_network_gets_the_kernels_of_its_nchw_twin():
    def network(layout):
        last = layout == "NHWC"
        x = relay.var("x", shape=(1, 8, 8, 16) if last else (1, 16, 8, 8))
        kernel = np.ones((32, 16, 3, 3), "float32")
        weight = relay.const(np.ascontiguousarray(kernel.transpose(2, 3, 1, 0) if last else kernel))
        y = relay.nn.conv2d(
            x, weight, padding=(1, 1), data_layout=layout, kernel_layout="HWIO" if last else "OIHW"
        )
        y = relay.nn.bias_add(y, relay.const(np.ones(32, "float32")), axis=3 if last else 1)
        y = relay.nn.global_avg_pool2d(relay.nn.relu(y), layout=layout)
        return relay.Function([x], relay.nn.batch_flatten(y))

    expected = implementations(network("NCHW"))
    assert any(name.startswith("conv2d") for name in expected)
    assert implementations(network("NHWC")) == expected
    assert not any(
        name.startswith("conv2d")
        for name in implementations(network("NHWC"), disabled_pass=["ConvertLayout"])
    )


def test_a_record_of_an_nhwc_kernel_is_found_by_its_template(build, tmp_path):
    def body(b, x):
        y = b.emit(OPS.nn.relu(b.emit(OPS.add(conv(b, x, 32), const(32)))))
        return conv(b, y, 8, 1)

    mod, target = build(body, x=SHAPE), targets.parse("llvm -mcpu=x86-64-v3")
    task = next(
        task
        for task in auto_scheduler.extract_tasks(mod, {}, target)[0]
        if "1x6x8x32" in task.workload_key
    )
    tuner = next(
        tuner
        for tuner in TemplateSearch(task, [], "random", seed=1).tuners
        if tuner.task.name == "conv2d_direct.x86"
    )
    template = Template(tuner.task.name, tuner.task.args, tuner.space.get(0).to_entity())
    log = tmp_path / "nhwc.json"
    save_records(
        log, [Record(task.workload_key, {"kind": "llvm"}, [[], []], (1e-6,), 0, template=template)]
    )
    with tvm.transform.PassContext(opt_level=3), auto_scheduler.ApplyHistoryBest(log):
        report = relay.build(mod, target).report
    sources = {kernel.source: kernel.implementation for kernel in report.kernels}
    assert sources["auto_scheduler:nhwc.json:1"] == "conv2d_direct.x86"
