"""A whole network on CUDA: every kernel has threads, and device code comes out."""

import shutil

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

from schedules.cuda import has_thread_bindings, rules, violation
from tests.schedules.cuda.checking import TARGET, check_func, schedule
from tests.schedules.cuda.emulation import COMPILER


def network():
    """Convolution, depthwise convolution, pooling, attention-like products, row-wise functions."""
    rng = np.random.default_rng(0)

    def weight(*shape):
        return relax.const(rng.standard_normal(shape).astype("float32"))

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 3, 33, 31), "float32"))
    op, nn = relax.op, relax.op.nn
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(nn.conv2d(x, weight(20, 3, 3, 3), strides=2, padding=1))
            y = builder.emit(nn.relu(builder.emit(op.add(y, weight(1, 20, 1, 1)))))
            y = builder.emit(nn.conv2d(y, weight(20, 1, 3, 3), padding=1, groups=20))
            y = builder.emit(op.clip(y, 0, 6))
            y = builder.emit(nn.max_pool2d(y, (3, 3), (2, 2), (1, 1)))
            y = builder.emit(op.reshape(y, (1, 20, 72)))
            y = builder.emit(op.permute_dims(y, (0, 2, 1)))
            y = builder.emit(nn.layer_norm(y, weight(20), weight(20), axes=[-1]))
            scores = builder.emit(op.matmul(y, builder.emit(op.permute_dims(y, (0, 2, 1)))))
            y = builder.emit(op.matmul(builder.emit(nn.softmax(scores)), y))
            y = builder.emit(nn.gelu(builder.emit(op.matmul(y, weight(20, 37)))))
            y = builder.emit(op.mean(y, 1))
            out = builder.emit_output(builder.emit(op.matmul(y, weight(37, 10))))
        builder.emit_func_output(out)
    return builder.get()


@pytest.fixture(scope="module")
def kernels():
    with TARGET:
        module = tvm.transform.Sequential(
            [
                relax.transform.LegalizeOps(),
                relax.transform.AnnotateTIROpPattern(),
                relax.transform.FoldConstant(),
                relax.transform.FuseOps(),
                relax.transform.FuseTIR(),
            ]
        )(network())
    return {
        gvar.name_hint: func
        for gvar, func in module.functions_items()
        if isinstance(func, tirx.PrimFunc)
    }


def test_every_kernel_of_a_network_gets_threads_within_the_limits(kernels):
    names = set()
    for func in kernels.values():
        name, scheduled = schedule(func)
        names.add(name)
        assert has_thread_bindings(scheduled)
        assert violation(scheduled, TARGET) is None
    assert {"cuda.float32_products", "cuda.windows", "cuda.stages"} <= names


@pytest.mark.skipif(COMPILER is None, reason="the emulation needs a C++ compiler")
def test_every_kernel_of_a_network_is_right(kernels, tmp_path):
    for func in kernels.values():
        check_func(func, tmp_path)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_device_code_comes_out_for_a_network(kernels):
    from compiler.runtime.cuda_code import extract
    from compiler.target.nvcc import device_code

    scheduled = {
        name: schedule(func)[1].with_attr("global_symbol", name) for name, func in kernels.items()
    }
    with device_code():
        library = tvm.tirx.build(tvm.IRModule(scheduled), TARGET)
    (device,) = library.imports
    source = device.inspect_source()
    code = extract(source)
    assert device.kind == "cuda"
    assert code.startswith(b"\x50\xed\x55\xba"), "the magic number of a fatbin"
    assert all(f"{name}_kernel".encode() in code for name in scheduled)


def test_half_precision_products_and_convolutions_get_threads():
    from tvm import te, topi

    x = te.placeholder((1, 16, 9, 7), "float16", name="x")
    w = te.placeholder((32, 16, 3, 3), "float16", name="w")
    name, _ = schedule(te.create_prim_func([x, w, topi.nn.conv2d_nchw(x, w, 1, 1, 1)]))
    assert name == "cuda.tensor_cores"
    a = te.placeholder((64, 64), "float16", name="a")
    b = te.placeholder((64, 64), "float16", name="b")
    name, _ = schedule(te.create_prim_func([a, b, topi.matmul(a, b)]))
    assert name == "cuda.tensor_cores"


def test_rules_have_distinct_names_for_the_report():
    names = [rule.name for rule in rules()]
    assert len(set(names)) == len(names)
