"""Values of Relay operators against numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler import relay
from compiler.errors import RelayTypeError
from compiler.relay.op.reshaping import resolve_reshape

RANDOM = np.random.RandomState(0)


def _run(function, *arrays):
    """The value of a function of variables for arrays."""
    variables = [
        relay.var(f"x{i}", shape=array.shape, dtype=str(array.dtype))
        for i, array in enumerate(arrays)
    ]
    body = function(*variables)
    net = relay.Function(variables, body)
    result = relay.create_executor("vm").evaluate(net)(*arrays)
    return [part.numpy() for part in result] if isinstance(result, list) else result.numpy()


def _floats(*shape: int) -> np.ndarray:
    return RANDOM.uniform(-2, 2, shape).astype("float32")


def test_round_goes_away_from_zero_and_keeps_what_is_next_to_a_half():
    below = np.nextafter(np.float32(0.5), np.float32(0))
    data = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, below, 8388609.0, -0.2], "float32")
    want = np.array([-3, -2, -1, 1, 2, 3, 0, 8388609.0, 0], "float32")
    np.testing.assert_array_equal(_run(relay.round, data), want)


def test_integer_division_truncates_and_floor_division_does_not():
    a, b = np.array([5, -5, 7], "int32"), np.array([3, 3, -2], "int32")
    np.testing.assert_array_equal(_run(relay.divide, a, b), [1, -1, -3])
    np.testing.assert_array_equal(_run(relay.floor_divide, a, b), [1, -2, -4])
    np.testing.assert_array_equal(_run(relay.trunc_mod, a, b), [2, -2, 1])


def test_reductions_take_axes_exclude_and_keepdims():
    data = _floats(2, 3, 4)
    got = _run(lambda x: relay.sum(x, axis=1, exclude=True, keepdims=True), data)
    np.testing.assert_allclose(got, data.sum((0, 2), keepdims=True), rtol=1e-5)
    got = _run(lambda x: relay.variance(x, axis=[1], unbiased=True), data)
    np.testing.assert_allclose(got, data.var(1, ddof=1), rtol=1e-4)
    got = _run(lambda x: relay.std(x, axis=[1]), data)
    np.testing.assert_allclose(got, data.std(1), rtol=1e-4)
    assert _run(lambda x: relay.argmax(x, axis=2), data).dtype == np.int32


def test_a_reduction_over_nothing_gives_its_neutral_element():
    empty = np.zeros((2, 0), "float32")
    np.testing.assert_array_equal(_run(lambda x: relay.prod(x, axis=1), empty), [1, 1])
    assert _run(lambda x: relay.min(x, axis=1), empty)[0] == np.finfo("float32").max


def test_take_clips_wraps_and_gathers_in_batches():
    data = _floats(2, 4)
    places = np.array([[5, -1], [0, 3]], "int32")
    got = _run(lambda x, i: relay.take(x, i, axis=1), data, places)
    np.testing.assert_array_equal(got, np.take(data, places, 1, mode="clip"))
    got = _run(lambda x, i: relay.take(x, i, axis=1, mode="wrap"), data, places)
    np.testing.assert_array_equal(got, np.take(data, places, 1, mode="wrap"))
    inside = np.array([[1, 2], [0, 3]], "int32")
    got = _run(lambda x, i: relay.take(x, i, axis=1, batch_dims=1), data, inside)
    np.testing.assert_array_equal(got, np.take_along_axis(data, inside, 1))


@pytest.mark.parametrize(("axis", "shape"), [(0, (2, 4)), (1, (3, 2)), (0, (0, 4)), (1, (3, 0))])
def test_gather_takes_along_an_axis_also_nothing(axis, shape):
    data = _floats(3, 4)
    places = RANDOM.randint(0, 3, shape)
    got = _run(lambda x, i: relay.gather(x, axis, i), data, places)
    np.testing.assert_array_equal(got, np.take_along_axis(data, places, axis))


def test_gather_nd_and_scatter_nd_have_coordinates_on_the_first_axis():
    data = _floats(3, 4)
    places = np.array([[0, 2], [3, 1]], "int32")
    got = _run(relay.gather_nd, data, places)
    np.testing.assert_array_equal(got, data[[0, 2], [3, 1]])
    updates = _floats(2)
    want = data.copy()
    want[[0, 2], [3, 1]] += updates
    got = _run(lambda x, i, u: relay.scatter_nd(x, i, u, "add"), data, places, updates)
    np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("is_sorted", [True, False])
def test_unique_returns_values_first_places_inverse_and_counts(is_sorted):
    data = np.array([4, 1, 4, 2, 1, 9], "int32")
    values, first, inverse, number, counts = _run(
        lambda x: relay.unique(x, is_sorted, True).astuple(), data
    )
    want, at, back, many = np.unique(
        data, return_index=True, return_inverse=True, return_counts=True
    )
    if not is_sorted:
        order = np.argsort(at)
        back = np.argsort(order)[back]
        want, at, many = want[order], at[order], many[order]
    count = int(number[0])
    assert count == len(want)
    np.testing.assert_array_equal(values[:count], want)
    np.testing.assert_array_equal(first[:count], at)
    np.testing.assert_array_equal(counts[:count], many)
    np.testing.assert_array_equal(inverse, back)


def test_argwhere_and_what_follows_it_have_shapes_of_the_data():
    data = np.array([[0, 3, 0], [1, 0, 2]], "float32")
    got = _run(lambda x: relay.transpose(relay.argwhere(x)), data)
    np.testing.assert_array_equal(got, np.argwhere(data).T)


def test_strided_slice_clamps_reverses_and_takes_sizes():
    data = _floats(5, 6)
    got = _run(lambda x: relay.strided_slice(x, [1, 9], [4, -9], [2, -2]), data)
    np.testing.assert_array_equal(got, data[1:4:2, 9::-2])
    got = _run(lambda x: relay.strided_slice(x, [1, 2], [3, -1], slice_mode="size"), data)
    np.testing.assert_array_equal(got, data[1:4, 2:])


@pytest.mark.parametrize(("begin", "end"), [(-9, 2), (1, 3), (2, 2)])
def test_a_slice_with_a_negative_stride_may_have_no_elements(begin, end):
    data = _floats(3, 2)
    got = _run(lambda x: relay.strided_slice(x, [begin], [end], [-1], axes=[0]), data)
    np.testing.assert_array_equal(got, data[begin:end:-1])


def test_a_shape_computed_at_run_time_shapes_a_tensor():
    data, shape = _floats(2, 6), np.array([3, -1], "int64")
    np.testing.assert_array_equal(_run(relay.reshape, data, shape), data.reshape(3, 4))


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
@settings(max_examples=60, deadline=None)
def test_reshape_codes_keep_the_number_of_elements(shape, draw):
    codes, position = [], 0
    while position < len(shape):
        left = len(shape) - position
        kinds = ["keep", "rest"] + (["join"] if left > 1 else []) + ["split"]
        kind = draw.draw(st.sampled_from(kinds))
        if kind == "keep":
            codes.append(0 if len(codes) == position else shape[position])
            position += 1
        elif kind == "rest":
            codes.append(-2)
            position = len(shape)
        elif kind == "join":
            codes.append(-3)
            position += 2
        else:
            codes += [-4, -1, 1]
            position += 1
        if kind in ("join", "split"):
            codes.append(-2)
            position = len(shape)
    try:
        result = resolve_reshape(shape, codes)
    except RelayTypeError:
        return
    assert math.prod(result) == math.prod(shape)


def test_reshape_codes_split_and_infer():
    assert resolve_reshape((2, 3, 4), [-4, 1, 2, -2]) == [1, 2, 3, 4]
    assert resolve_reshape((2, 3, 4), [-3, 4]) == [6, 4]
    assert resolve_reshape((2, 3, 4), [0, -1]) == [2, 12]
    with pytest.raises(RelayTypeError):
        resolve_reshape((2, 3, 4), [-1, -1])


def test_transposed_and_grouped_convolutions_agree_with_sums_by_hand():
    data, weight = _floats(1, 4, 5, 5), _floats(4, 2, 3, 3)
    got = _run(lambda x, w: relay.nn.conv2d(x, w, groups=4, padding=(1, 1)), data, weight)
    padded = np.pad(data, [(0, 0), (0, 0), (1, 1), (1, 1)])
    want = np.zeros((1, 8, 5, 5))
    for out in range(8):
        for i in range(5):
            for j in range(5):
                patch = padded[0, out // 2, i : i + 3, j : j + 3]
                want[0, out, i, j] = (patch * weight[out // 2, out % 2]).sum()
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_packed_layouts_compute_what_plain_ones_do():
    data, weight = _floats(1, 8, 6, 6), _floats(8, 8, 3, 3)
    plain = _run(lambda x, w: relay.nn.conv2d(x, w, padding=1), data, weight)

    def packed(x, w):
        x = relay.layout_transform(x, "NCHW", "NCHW4c")
        w = relay.layout_transform(w, "OIHW", "OIHW4i4o")
        y = relay.nn.contrib_conv2d_nchwc(
            x, w, padding=1, channels=8, kernel_size=(3, 3), data_layout="NCHW4c",
            kernel_layout="OIHW4i4o",
        )  # fmt: skip
        return relay.layout_transform(y, "NCHW4c", "NCHW")

    np.testing.assert_allclose(_run(packed, data, weight), plain, rtol=1e-4, atol=1e-4)


def test_a_winograd_convolution_is_the_convolution():
    data, weight = _floats(2, 3, 7, 9), _floats(4, 3, 3, 3)
    plain = _run(lambda x, w: relay.nn.conv2d(x, w, padding=1), data, weight)

    def winograd(x, w):
        turned = relay.nn.contrib_conv2d_winograd_weight_transform(w, 4)
        return relay.nn.contrib_conv2d_winograd_without_weight_transform(
            x, turned, 4, padding=1, channels=4, kernel_size=(3, 3)
        )

    np.testing.assert_allclose(_run(winograd, data, weight), plain, rtol=1e-3, atol=1e-3)


def test_average_pooling_does_not_count_padding_and_pad_edge_repeats():
    data = np.ones((1, 1, 3, 3), "float32")
    got = _run(lambda x: relay.nn.avg_pool2d(x, (3, 3), padding=(1, 1)), data)
    np.testing.assert_array_equal(got, np.ones((1, 1, 3, 3)))
    row = _floats(1, 3)
    got = _run(lambda x: relay.nn.pad(x, ((0, 0), (2, 1)), pad_mode="edge"), row)
    np.testing.assert_array_equal(got, np.pad(row, [(0, 0), (2, 1)], "edge"))


def test_sparse_products_agree_with_dense_ones():
    dense = _floats(3, 4)
    matrix = np.array([[0, 2, 0, 0], [1, 0, 0, 3], [0, 0, 0, 0]], "float32")
    data, indices = np.array([2, 1, 3], "float32"), np.array([1, 0, 3], "int32")
    indptr = np.array([0, 1, 3, 3], "int32")
    got = _run(lambda x, d, i, p: relay.nn.sparse_dense(x, (d, i, p)), dense, data, indices, indptr)
    np.testing.assert_allclose(got, dense @ matrix.T, rtol=1e-5)


def test_requantize_rounds_up_or_to_nearest():
    data = np.array([-3, -1, 1, 3], "int32")

    def scaled(rounding):
        return lambda x: relay.qnn.op.requantize(
            x, relay.const(0.5), relay.const(0), relay.const(1.0), relay.const(0),
            rounding=rounding, out_dtype="int8",
        )  # fmt: skip

    np.testing.assert_array_equal(_run(scaled("UPWARD"), data), [-1, 0, 1, 2])
    np.testing.assert_array_equal(_run(scaled("TONEAREST"), data), [-2, -1, 1, 2])


def test_a_quantized_convolution_subtracts_zero_points_before_padding():
    data = RANDOM.randint(0, 255, (1, 2, 4, 4)).astype("uint8")
    weight = RANDOM.randint(-128, 127, (3, 2, 3, 3)).astype("int8")

    def quantized(x, w):
        return relay.qnn.op.conv2d(
            x, w, relay.const(7), relay.const(-2), relay.const(1.0), relay.const(1.0),
            kernel_size=(3, 3), channels=3, padding=(1, 1),
        )  # fmt: skip

    real, kernel = data.astype("int64") - 7, weight.astype("int64") + 2
    padded = np.pad(real, [(0, 0), (0, 0), (1, 1), (1, 1)])
    want = np.zeros((1, 3, 4, 4), "int64")
    for i in range(4):
        for j in range(4):
            want[0, :, i, j] = np.tensordot(kernel, padded[0, :, i : i + 3, j : j + 3], 3)
    np.testing.assert_array_equal(_run(quantized, data, weight), want)


def test_suppression_keeps_the_best_of_overlapping_boxes():
    boxes = np.array(
        [[[0, 0.9, 0, 0, 4, 4], [0, 0.8, 0, 0, 4, 3], [1, 0.7, 0, 0, 4, 4], [0, 0.6, 5, 5, 9, 9]]],
        "float32",
    )

    def suppress(x):
        count, data, indices = relay.vision.get_valid_counts(x, 0.65)
        return relay.vision.non_max_suppression(
            data, count, indices, -1, 0.5, return_indices=True
        ).astuple()

    indices, count = _run(suppress, boxes)
    assert count.ravel().tolist() == [2]
    assert indices[0, :2].tolist() == [0, 2]
