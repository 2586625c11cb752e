"""Convolutions on CUDA, at shapes that no tile divides."""

import pytest
from tvm import te, topi

from schedules.cuda import rules
from tests.schedules.cuda import checking
from tests.schedules.cuda.checking import tensor
from tests.schedules.cuda.emulation import COMPILER

EARLIER = [rule for rule in rules() if rule.name != "cuda.float32_products"]
"""What architectures before sm_80, which have no `cp.async`, are left with."""

pytestmark = pytest.mark.skipif(COMPILER is None, reason="the emulation needs a C++ compiler")


def check(tensors, folder):
    return checking.check(tensors, folder, *EARLIER)


def schedule(func):
    return checking.schedule(func, EARLIER)


def conv2d(n, c, size, o, kernel, stride=1, pad=0, dilation=1, groups=1):
    x, w = tensor(n, c, *size), tensor(o, c // groups, kernel, kernel, name="w")
    bias = tensor(1, o, 1, 1, name="bias")
    if groups == 1:
        y = topi.nn.conv2d_nchw(x, w, stride, pad, dilation)
    else:
        y = topi.nn.group_conv2d_nchw(x, w, stride, pad, dilation, groups)
    return [x, w, bias, topi.nn.relu(topi.add(y, bias))]


@pytest.mark.parametrize(
    "arguments",
    [
        (1, 5, (9, 7), 11, 3, 1, 1),
        (2, 3, (17, 13), 7, 3, 2, 2, 2),
        (1, 33, (7, 7), 130, 1),
        (1, 3, (11, 12), 65, 5, 2, (1, 2, 0, 1)),
    ],
)
def test_a_dense_convolution_with_its_epilogue_is_one_tiled_kernel(arguments, tmp_path):
    assert check(conv2d(*arguments), tmp_path) == "cuda.convolution"


def test_a_large_convolution_uses_the_largest_tile(tmp_path):
    assert check(conv2d(1, 4, (66, 65), 131, 3), tmp_path) == "cuda.convolution"
    _, scheduled = schedule(te.create_prim_func(conv2d(1, 4, (130, 130), 1024, 1)))
    assert 'T.thread_binding(8, thread="vthread.x")' in scheduled.script()


@pytest.mark.parametrize(("groups", "channels", "out"), [(4, 16, 32), (3, 6, 15)])
def test_groups_of_many_channels_are_tiled_as_a_batch(groups, channels, out, tmp_path):
    tensors = conv2d(1, channels, (9, 8), out, 3, 1, 1, groups=groups)
    assert check(tensors, tmp_path) == "cuda.convolution"


@pytest.mark.parametrize(("groups", "channels", "out"), [(13, 13, 13), (6, 6, 12), (4, 8, 8)])
def test_depthwise_and_thin_groups_take_a_thread_for_each_output(groups, channels, out, tmp_path):
    tensors = conv2d(1, channels, (9, 11), out, 3, 2, 1, groups=groups)
    assert check(tensors, tmp_path) == "cuda.windows"


def test_a_transposed_convolution_is_legal_and_right(tmp_path):
    x, w = tensor(1, 6, 7, 9), tensor(6, 5, 3, 3, name="w")
    y = topi.nn.conv2d_transpose_nchw(x, w, (2, 2), (1, 1), "float32", (1, 1))
    assert check([x, w, y], tmp_path) == "cuda.convolution"


def test_a_grouped_transposed_convolution_is_legal_and_right(tmp_path):
    x, w = tensor(1, 6, 7, 9), tensor(6, 2, 3, 3, name="w")
    check(
        [x, w, topi.nn.group_conv2d_transpose_nchw(x, w, (2, 2), (1, 1), "float32", (0, 0), 3)],
        tmp_path,
    )


def test_convolutions_of_one_and_three_dimensions_and_nhwc_are_tiled_too(tmp_path):
    x, w = tensor(2, 5, 23), tensor(7, 5, 4, name="w")
    assert check([x, w, topi.nn.conv1d_ncw(x, w, 2, 1, 1)], tmp_path) == "cuda.convolution"
    x, w = tensor(1, 3, 5, 6, 7), tensor(9, 3, 3, 3, 3, name="w")
    assert check([x, w, topi.nn.conv3d_ncdhw(x, w, 1, 1, 1, 1)], tmp_path) == "cuda.convolution"
    x, w = tensor(1, 9, 7, 5), tensor(3, 3, 5, 11, name="w")
    assert check([x, w, topi.nn.conv2d_nhwc(x, w, 1, 1, 1)], tmp_path) == "cuda.convolution"
