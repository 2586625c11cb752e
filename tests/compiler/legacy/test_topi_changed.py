"""Computes of TOPI whose results or arguments were others."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax, te

from compiler import legacy
from compiler.errors import InputError


@pytest.fixture(autouse=True)
def old_names():
    legacy.install(everything=True)
    yield
    legacy.uninstall()


def run(inputs, outputs, *arrays):
    """What a default schedule computes of arrays."""
    outputs = [outputs] if isinstance(outputs, te.Tensor) else list(outputs)
    schedule = te.create_schedule([each.op for each in outputs])
    found = [
        tvm.nd.array(np.zeros([int(extent) for extent in each.shape], str(each.dtype)))
        for each in outputs
    ]
    tvm.build(schedule, [*inputs, *outputs], "llvm")(*map(tvm.nd.array, arrays), *found)
    return [each.numpy() for each in found]


def windows(values, kernel, stride, before, after, empty):
    """The windows of one axis as TVM 0.18 counted them with `ceil_mode`, and their sizes."""
    padded = np.pad(values, (before, after + stride + kernel), constant_values=empty)
    count = -(-(values.size + before + after - kernel) // stride) + 1
    ends = [min(i * stride + kernel, values.size + before + after) for i in range(count)]
    parts = [padded[i * stride : i * stride + kernel] for i in range(count)]
    return parts, [end - i * stride for i, end in enumerate(ends)]


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize("size, kernel, stride, before, after", [(7, 3, 3, 1, 2), (8, 3, 2, 0, 0)])
def test_ceil_mode_counts_a_last_window_in_the_padding(kind, size, kernel, stride, before, after):
    from tvm import topi

    values = np.random.default_rng(0).random(size, "float32")
    lowest = np.finfo("float32").min
    parts, sizes = windows(values, kernel, stride, before, after, lowest if kind == "max" else 0)
    if kind == "max":
        expected = [part.max() for part in parts]
    else:
        expected = [part.sum() / size for part, size in zip(parts, sizes)]
    data = te.placeholder((1, 1, size), name="data")
    out = topi.nn.pool1d(data, [kernel], [stride], [1], [before, after], kind, ceil_mode=True)
    (found,) = run([data], out, values.reshape(1, 1, -1))
    np.testing.assert_allclose(found[0, 0], expected, rtol=1e-6)
    bare = topi.nn.pool2d(te.placeholder((1, 2, 9, 9)), [3, 3], [2, 2], [1, 1], [0, 0, 0, 0], kind)
    assert [int(extent) for extent in bare.shape] == [1, 2, 4, 4]


def test_relax_pools_as_today():
    x = relax.Var("x", relax.TensorType((1, 1, 7), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        pooled = builder.emit(relax.op.nn.max_pool1d(x, [3], [3], padding=[1, 2], ceil_mode=True))
        builder.emit_func_output(pooled)
    mod = relax.transform.LegalizeOps()(builder.get())
    names = {str(variable.name_hint) for variable in mod.get_global_vars()}
    kernel = mod[next(name for name in names if name != "main")]
    assert [int(extent) for extent in kernel.params[1].ty.shape] == [
        int(extent) for extent in mod["main"].ret_ty.shape
    ]


def test_the_batch_becomes_space():
    from tvm import topi

    values = np.random.default_rng(0).random((12, 2, 3, 2), "float32")
    data = te.placeholder(values.shape, name="data")
    out = topi.nn.batch_to_space_nd(data, [2, 3], [1, 0], [0, 2])
    (found,) = run([data], out, values)
    blocks = values.reshape(2, 3, 2, 2, 3, 2).transpose(2, 3, 0, 4, 1, 5)
    np.testing.assert_array_equal(found, blocks.reshape(2, 4, 9, 2)[:, 1:, :7])
    with pytest.raises(InputError, match="no multiple"):
        topi.nn.batch_to_space_nd(te.placeholder((5, 2, 3, 2)), [2, 3], [0, 0], [0, 0])
    with pytest.raises(InputError, match="each spatial axis"):
        topi.nn.batch_to_space_nd(data, [2, 3], [0], [0, 0])


def test_instance_norm_takes_the_arguments_of_both():
    from tvm import topi

    random = np.random.default_rng(0)
    values, gamma, beta = (random.random(shape, "float32") for shape in ((3, 4, 5), (5,), (5,)))
    inputs = [
        te.placeholder(each.shape, name=f"x{i}") for i, each in enumerate((values, gamma, beta))
    ]
    (found,) = run(inputs, topi.nn.instance_norm(*inputs, (2,), 1e-5), values, gamma, beta)
    mean, var = values.mean(2, keepdims=True), values.var(2, keepdims=True)
    np.testing.assert_allclose(
        found, (values - mean) / np.sqrt(var + 1e-5) * gamma + beta, rtol=1e-4
    )
    weights = [te.placeholder((4,), name="gamma"), te.placeholder((4,), name="beta")]
    inputs = [inputs[0], *weights]
    (found,) = run(inputs, topi.nn.instance_norm(*inputs, 1, [2]), values, gamma[:4], beta[:4])
    normed = (values - mean) / np.sqrt(var + 1e-5)
    np.testing.assert_allclose(found, normed * gamma[:4, None] + beta[:4, None], rtol=1e-4)


def test_round_and_comparisons_of_a_tensor_without_axes():
    from tvm import topi

    data = te.placeholder((4,), name="data")
    (found,) = run([data], topi.round(data), np.array([0.5, 1.5, -2.5, 2.4], "float32"))
    np.testing.assert_array_equal(found, [1, 2, -3, 2])
    flag = te.placeholder((), "int32", name="flag")
    chosen = te.compute((4,), lambda i: te.if_then_else(flag.equal(2), data[i], 0.0))
    values = np.arange(4, dtype="float32")
    for value, factor in ((2, 1), (3, 0)):
        (found,) = run([data, flag], chosen, values, np.array(value, "int32"))
        np.testing.assert_array_equal(found, values * factor)


def test_a_pool_without_dilation():
    from tvm import topi

    data = te.placeholder((1, 2, 4, 6), name="data")
    out = topi.nn.pool(data, (2, 2), (2, 2), (0, 0, 0, 0), "max")
    values = np.random.default_rng(0).random((1, 2, 4, 6), "float32")
    (found,) = run([data], out, values)
    np.testing.assert_array_equal(found, values.reshape(1, 2, 2, 2, 3, 2).max((3, 5)))


def test_suppressed_boxes_have_a_row_for_every_box_of_every_class():
    from tvm import topi

    corners = np.array([[0, 0, 0.5, 0.5], [0, 0, 0.49, 0.5], [0.5, 0.5, 1, 1]], "float32")[None]
    values = np.array([[[0.9, 0.8, 0.7], [0.1, 0.6, 0.2]]], "float32")
    boxes, scores = (
        te.placeholder((1, 3, 4), name="boxes"),
        te.placeholder((1, 2, 3), name="scores"),
    )
    out = topi.vision.all_class_non_max_suppression(boxes, scores, 2, 0.5, 0.0)
    assert [int(extent) for extent in out[0].shape] == [6, 3]
    indices, count = run([boxes, scores], out, corners, values)
    assert int(count[0]) == 4
    np.testing.assert_array_equal(indices[:4], [[0, 0, 0], [0, 0, 2], [0, 1, 1], [0, 1, 2]])


@pytest.mark.parametrize("spelled", ["by place", "by name", "with a region"])
def test_pictures_are_resized_without_a_region(spelled):
    image = np.random.rand(1, 2, 3, 4).astype("float32")
    x = te.placeholder(image.shape, name="x")
    options = {"method": "nearest_neighbor", "coordinate_transformation_mode": "asymmetric"}
    made = {
        "by place": lambda: tvm.topi.image.resize2d(x, (6, 8), "NCHW", **options),
        "by name": lambda: tvm.topi.image.resize2d(x, size=(6, 8), layout="NCHW", **options),
        "with a region": lambda: tvm.topi.image.resize2d(x, (0.0,) * 4, (6, 8), "NCHW", **options),
    }[spelled]()
    (found,) = run([x], made, image)
    np.testing.assert_array_equal(found, image.repeat(2, 2).repeat(2, 3))


def test_the_product_of_batches_is_a_compute_of_its_package():
    from tvm.topi import x86

    x, y = (te.placeholder((2, 3, 4), name=name) for name in "xy")
    left, right = np.random.rand(2, 2, 3, 4).astype("float32")
    (found,) = run([x, y], x86.batch_matmul(x, y), left, right)
    np.testing.assert_allclose(found, left @ right.swapaxes(1, 2), rtol=1e-5)
