"""Schedules of TE that old scripts ask `tvm.topi` for."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te

from compiler import legacy
from compiler.errors import InputError, LegacyImportError, UnavailableTargetError
from compiler.target import nvcc


def _has_nvcc():
    try:
        nvcc.require("sm_80")
    except UnavailableTargetError:
        return False
    return True


@pytest.fixture(autouse=True)
def old_names():
    legacy.install(everything=True)
    yield
    legacy.uninstall()


def softmax(x):
    shifted = np.exp(x - x.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


def convolved(data, weight):
    padded = np.pad(data.astype("float64"), [(0, 0), (0, 0), (1, 1), (1, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    return np.maximum(np.einsum("nchwij,ocij->nohw", windows, weight), 0)


CASES = {
    "injective": (
        lambda t, a, b: t.nn.relu(a - b),
        lambda a, b: np.maximum(a - b, 0),
        [(3, 5, 40), (3, 5, 40)],
    ),
    "reduce": (lambda t, a: t.sum(a, axis=1), lambda a: a.sum(1), [(6, 50, 7)]),
    "reduce to one": (lambda t, a: t.sum(a), lambda a: a.sum(), [(6, 50, 7)]),
    "softmax": (lambda t, a: t.nn.softmax(a), softmax, [(6, 50)]),
    "conv2d_nchw": (
        lambda t, a, w: t.nn.relu(t.nn.conv2d_nchw(a, w, 1, 1, 1)),
        convolved,
        [(1, 4, 8, 8), (6, 4, 3, 3)],
    ),
    "pool": (
        lambda t, a: t.nn.pool2d(a, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), "max"),
        lambda a: a.reshape(1, 4, 4, 2, 4, 2).max((3, 5)),
        [(1, 4, 8, 8)],
    ),
}


def schedule(package, operator, out):
    return getattr(package, f"schedule_{operator.split()[0]}")(out)


@pytest.mark.parametrize("package", ["generic", "x86", "arm_cpu"])
@pytest.mark.parametrize("operator", CASES)
def test_a_schedule_of_topi_computes_the_operator(package, operator):
    from tvm import topi

    make, reference, shapes = CASES[operator]
    inputs = [te.placeholder(shape, name=f"A{i}") for i, shape in enumerate(shapes)]
    out = make(topi, *inputs)
    with tvm.target.Target("llvm"):
        s = schedule(getattr(topi, package), operator, out)
        function = tvm.build(s, [*inputs, out], "llvm")
    values = [np.random.default_rng(0).random(shape, "float32") for shape in shapes]
    found = tvm.nd.empty([int(n) for n in out.shape], "float32")
    function(*map(tvm.nd.array, values), found)
    np.testing.assert_allclose(found.numpy(), reference(*values), rtol=1e-4)
    if package == "x86" and out.shape:
        assert "T.parallel" in tvm.lower(s, [*inputs, out], simple_mode=True).script()


@pytest.mark.skipif(not _has_nvcc(), reason="needs an nvcc that knows sm_80")
@pytest.mark.parametrize("operator", CASES)
def test_a_cuda_schedule_of_topi_compiles_and_binds_every_stage(operator):
    from tvm import topi

    make, _, shapes = CASES[operator]
    inputs = [te.placeholder(shape, name=f"A{i}") for i, shape in enumerate(shapes)]
    with tvm.target.Target("cuda -arch=sm_80"):
        out = make(topi, *inputs)
        s = schedule(topi.cuda, operator, out)
        source = tvm.build(s, [*inputs, out], "cuda -arch=sm_80").imported_modules[0].get_source()
    assert "threadIdx.x" in source


@pytest.mark.parametrize("target", ["llvm", tvm.target.Target("llvm")])
def test_topis_tests_ask_for_the_schedules_of_a_target(target):
    import tvm.topi.testing
    from tvm import topi

    a = te.placeholder((4, 33), name="A")
    out = topi.sum(a + a, axis=1)
    s = topi.testing.get_reduce_schedule(target)(out)
    function = tvm.build(s, [a, out], target)
    values, found = np.ones((4, 33), "float32"), tvm.nd.empty((4,))
    function(tvm.nd.array(values), found)
    np.testing.assert_array_equal(found.numpy(), np.full(4, 66))
    compute, schedule = topi.testing.get_conv2d_nchw_implement(target)
    data, weight = te.placeholder((1, 2, 6, 6)), te.placeholder((3, 2, 3, 3))
    assert isinstance(compute(data, weight, 1, 0, 1).shape[1], tvm.tir.PrimExpr)
    assert schedule(compute(data, weight, 1, 0, 1)).stages


def test_what_those_modules_had_besides_says_where_it_is_when_it_is_used():
    from tvm import topi
    from tvm.topi.x86.tensor_intrin import dot_16x1x16_uint8_int8_int32

    assert topi.cuda.conv2d_nchw is topi.nn.conv2d_nchw
    for each in (dot_16x1x16_uint8_int8_int32, topi.x86.dense_alter_op):
        with pytest.raises(LegacyImportError, match="schedules"):
            each()


def test_convolutions_take_their_layout_by_its_old_name():
    data, weight = te.placeholder((1, 4, 8, 8)), te.placeholder((6, 4, 3, 3))
    out = tvm.topi.nn.conv2d(data, weight, strides=1, padding=1, dilation=1, layout="NCHW")
    assert [int(extent) for extent in out.shape] == [1, 6, 8, 8]
    out = tvm.topi.nn.conv2d(data, weight, 1, 0, 1, data_layout="NCHW")
    assert [int(extent) for extent in out.shape] == [1, 6, 6, 6]


def test_convolutions_take_the_arguments_of_08():
    from tvm import topi

    def dtype_of(out):
        return str(out.dtype)

    line, wide = te.placeholder((1, 4, 8), "int8"), te.placeholder((1, 4, 8, 8), "int8")
    cube, last = te.placeholder((1, 4, 6, 6, 6), "int8"), te.placeholder((1, 6, 6, 6, 4), "int8")
    kernel = te.placeholder((6, 4, 3), "int8")
    assert dtype_of(topi.nn.conv1d(line, kernel, 1, 0, 1, "NCW", "int32")) == "int32"
    assert (
        dtype_of(topi.nn.conv1d(line, kernel, 1, 0, 1, layout="NCW", out_dtype="int32")) == "int32"
    )
    kernel = te.placeholder((6, 4, 3, 3), "int8")
    assert dtype_of(topi.nn.conv2d(wide, kernel, 1, 0, 1, "NCHW", "int32")) == "int32"
    assert dtype_of(topi.nn.conv2d(wide, kernel, 1, 0, 1, "NCHW", "OIHW", "int32")) == "int32"
    kernel = te.placeholder((6, 4, 3, 3, 3), "int8")
    assert dtype_of(topi.nn.conv3d_ncdhw(cube, kernel, 1, 0, 1, "int32")) == "int32"
    assert dtype_of(topi.nn.conv3d_ncdhw(cube, kernel, 1, 0, 1, 1, "int32")) == "int32"
    kernel = te.placeholder((3, 3, 3, 4, 6), "int8")
    assert dtype_of(topi.nn.conv3d_ndhwc(last, kernel, 1, 0, 1, out_dtype="int32")) == "int32"
    last, kernel = te.placeholder((1, 6, 6, 4), "int8"), te.placeholder((3, 3, 4, 2), "int8")
    assert dtype_of(topi.nn.depthwise_conv2d_nhwc(last, kernel, 1, 0, 1, "int32")) == "int32"
    assert (
        dtype_of(topi.nn.depthwise_conv2d_nhwc(last, kernel, 1, 0, 1, "HWOI", "int32")) == "int32"
    )


def test_a_table_is_asked_for_the_first_key_of_a_target():
    from tvm import topi

    table = {"generic": 0, "gpu": 1, "arm_cpu": 2}
    asked = {"llvm": 0, "cuda -arch=sm_80": 1, "llvm -device=arm_cpu": 2}
    for target, expected in asked.items():
        assert topi.testing.dispatch(target, table) == expected


def test_devices_that_are_gone_do_not_exist():
    assert not tvm.device("sdaccel", 0).exist
    assert not tvm.runtime.enabled("sdaccel")
    assert tvm.runtime.enabled("c")


def test_anchors_are_those_of_relays_operator():
    from tvm import topi

    data = te.placeholder((1, 3, 5, 4), name="data")
    boxes = topi.vision.multibox_prior(data, (0.5, 0.25), (1, 2), clip=True)
    schedule = topi.generic.schedule_multibox_prior(boxes)
    found = tvm.runtime.tensor(np.zeros([int(n) for n in boxes.shape], "float32"))
    values = tvm.runtime.tensor(np.zeros((1, 3, 5, 4), "float32"))
    tvm.build(schedule, [data, boxes], "llvm")(values, found)
    from compiler import relay

    x = relay.var("x", shape=(1, 3, 5, 4))
    same = relay.Function([x], relay.vision.multibox_prior(x, (0.5, 0.25), (1, 2), clip=True))
    expected = relay.create_executor("graph", tvm.IRModule.from_expr(same)).evaluate()(values)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5)


def test_random_words_of_a_key():
    from tvm import topi

    key = te.placeholder((10,), "uint64", name="key")
    following, words = topi.random.threefry_generate(key, (2, 5))
    assert [int(extent) for extent in words.shape] == [2, 5] and following.dtype == "uint64"
    assert topi.random.threefry_test_wrapping("llvm", tvm.cpu())


def test_places_of_what_is_not_zero():
    from tvm import topi

    values = np.array([[0, 3, 0], [1, 0, 2]], "int32")
    shape, condition = te.placeholder((3, 2), "int32"), te.placeholder((2, 3), "int32", name="c")
    places = topi.argwhere(shape, condition)
    found = tvm.nd.array(np.full((3, 2), -1, "int32"))
    schedule = topi.generic.schedule_argwhere(places)
    tvm.build(schedule, [condition, places], "llvm")(tvm.nd.array(values), found)
    np.testing.assert_array_equal(found.numpy(), np.argwhere(values))
    with pytest.raises(InputError, match="rows, axes"):
        topi.argwhere(shape, te.placeholder((), "int32"))


@pytest.mark.parametrize("multiple, dilation", [(1, 1), (2, 2)])
def test_a_depthwise_convolution_of_blocked_channels(multiple, dilation):
    from tvm import topi

    random, channels, out_channels = np.random.default_rng(0), 8, 8 * multiple
    values = random.random((1, channels, 9, 9), "float32")
    weights = random.random((out_channels, 3, 3), "float32")
    data = te.placeholder((1, 2, 9, 9, 4), name="data")
    kernel = te.placeholder((multiple, 1, 3, 3, 1, 8), name="kernel")
    out = topi.x86.depthwise_conv2d_NCHWc(
        data, kernel, 2, (1, 1), dilation, "NCHW4c", "NCHW8c", "float32"
    )
    schedule = topi.x86.schedule_depthwise_conv2d_NCHWc(out)
    found = tvm.nd.array(np.zeros([int(extent) for extent in out.shape], "float32"))
    tvm.build(schedule, [data, kernel, out], "llvm")(
        tvm.nd.array(values.reshape(1, 2, 4, 9, 9).transpose(0, 1, 3, 4, 2).copy()),
        tvm.nd.array(weights.reshape(multiple, 1, 8, 3, 3, 1).transpose(0, 1, 3, 4, 5, 2).copy()),
        found,
    )
    padded = np.pad(values, [(0, 0), (0, 0), (1, 1), (1, 1)])
    views = np.lib.stride_tricks.sliding_window_view(padded, [2 * dilation + 1] * 2, (2, 3))
    views = views[0, :, ::2, ::2, ::dilation, ::dilation].repeat(multiple, axis=0)
    expected = np.einsum("chwij,cij->chw", views, weights)
    result = found.numpy()[0].transpose(0, 3, 1, 2).reshape(expected.shape)
    np.testing.assert_allclose(result, expected, rtol=1e-5)


def test_schedules_of_nothing_compute_nothing():
    from tvm import topi

    data = te.placeholder((3, 4, 3), name="data")
    out = topi.strided_slice(data, [0, 2, 0], [1, 2, 3]) + 1
    found = tvm.nd.empty((1, 0, 3))
    tvm.build(topi.x86.schedule_injective(out), [data, out], "llvm")(
        tvm.nd.array(np.zeros((3, 4, 3), "float32")), found
    )
    assert found.numpy().shape == (1, 0, 3)


def test_modules_of_schedules_have_the_names_of_their_package():
    from tvm import topi
    from tvm.topi.generic import conv2d as generic
    from tvm.topi.x86.conv2d import conv2d_nchw, schedule_conv2d_nchw
    from tvm.topi.x86.conv2d_alter_op import _alter_conv2d_layout

    assert conv2d_nchw is topi.nn.conv2d_nchw
    data, weight = te.placeholder((1, 2, 6, 6)), te.placeholder((3, 2, 3, 3))
    for schedule in (schedule_conv2d_nchw, generic.schedule_depthwise_conv2d_nhwc):
        assert schedule(topi.nn.conv2d_nchw(data, weight, 1, 0, 1)).stages
    with pytest.raises(LegacyImportError, match="schedules"):
        _alter_conv2d_layout()


@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("kind", ["conv2d", "depthwise_conv2d"])
def test_templates_ask_for_tiles_that_fit(kind, kernel):
    from tvm import autotvm
    from tvm.topi.nn.conv2d import _get_workload as of_all
    from tvm.topi.nn.depthwise_conv2d import _get_workload as of_each
    from tvm.topi.x86 import conv2d_avx_1x1, conv2d_avx_common, depthwise_conv2d

    data, weight = te.placeholder((1, 32, 28, 28)), te.placeholder((32, 32, kernel, kernel))
    describe, module = of_all, conv2d_avx_1x1 if kernel == 1 else conv2d_avx_common
    if kind == "depthwise_conv2d":
        describe, module = of_each, depthwise_conv2d
        weight = te.placeholder((32, 1, kernel, kernel))
    workload = describe(data, weight, (2, 2), kernel // 2, 1, "float32")
    with tvm.target.Target("llvm"):
        cfg = autotvm.get_config()
        module._fallback_schedule(cfg, workload)
    knobs = {name: np.prod(cfg[name].size) for name in ("tile_ic", "tile_oc", "tile_ow")}
    assert knobs == {"tile_ic": 32, "tile_oc": 32, "tile_ow": 14}
