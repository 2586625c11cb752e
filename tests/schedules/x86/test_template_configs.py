"""Any config of an x86 convolution template's space builds and is right, whatever its tiles."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.autotvm import decode
from compiler.target import parse
from schedules.conv2d import Conv2dWorkload
from schedules.conv3d import Conv3dWorkload
from schedules.space import space_of
from schedules.x86.templates import spaces  # noqa: F401  (registers the spaces)
from tests.compiler.autotvm.replay import relative_error
from tests.sweep import examples

HOST = parse("llvm")


def conv(channels, size, out, kernel, strides=(1, 1), padding=(0, 0, 0, 0), dilation=(1, 1),
         groups=1, batch=1, types=("float32", "float32", "float32")):  # fmt: skip
    data, weight, result = types
    return Conv2dWorkload(
        batch, channels, *size, out, kernel, strides, padding, dilation, groups, data, result,
        True, weight,
    )  # fmt: skip


def grouped_args(w):
    data, weight, strides, padding, dilation, _, _, out_dtype = w.autotvm_args()
    return (data, weight, strides, padding, dilation, w.groups, out_dtype)


ONES = (1, 1, 1, 1)
BYTES = ("uint8", "int8", "int32")
VOLUME = Conv3dWorkload(1, 4, (4, 6, 7), 6, (3, 3, 2), (1, 2, 1), (1,) * 6, (1, 1, 1))
LAST = Conv3dWorkload(
    1, 6, (3, 5, 7), 4, (1, 3, 3), (1, 1, 1), (0, 1, 1, 0, 1, 1), (1, 1, 1), channels_last=True
)
CASES = [
    ("conv2d_NCHWc.x86", conv(6, (9, 11), 10, (3, 3), (1, 1), ONES)),
    ("conv2d_NCHWc.x86", conv(5, (12, 9), 8, (3, 2), (2, 1), (0, 1, 1, 0), (1, 2), batch=2)),
    ("conv2d_NCHWc.x86", conv(12, (7, 13), 20, (1, 1))),
    ("conv2d_NCHWc.x86", conv(6, (9, 7), 8, (3, 3), types=("int8", "int8", "int32"))),
    ("depthwise_conv2d_NCHWc.x86", conv(12, (9, 11), 12, (3, 3), (2, 2), ONES, groups=12)),
    ("depthwise_conv2d_NCHWc.x86", conv(8, (7, 6), 8, (3, 3), groups=8, batch=2, types=BYTES)),
    ("group_conv2d_nchw.x86", conv(12, (9, 7), 18, (3, 3), (1, 1), ONES, groups=3)),
    ("conv2d_NCHWc_int8.x86", conv(16, (9, 11), 32, (3, 3), (1, 1), ONES, types=BYTES)),
    ("conv2d_NCHWc_int8.x86", conv(8, (7, 13), 48, (1, 1), batch=2, types=BYTES)),
    ("conv3d_ncdhw.x86", VOLUME),
    ("conv3d_ndhwc.x86", LAST),
]


@pytest.mark.parametrize(("name", "workload"), CASES, ids=[case[0] for case in CASES])
@examples(2)
@given(data=st.data())
def test_any_config_of_the_space_is_right(name, workload, data):
    space = space_of(name, workload, HOST)
    config = space.get(data.draw(st.integers(0, space.range_length - 1)))
    args = grouped_args(workload) if name.startswith("group") else workload.autotvm_args()
    row = {
        "input": ["llvm", name, args, {}],
        "config": {"index": 0, "code_hash": None, "entity": config.to_entity()},
        "result": [[1e-6], 0, 1.0, 1.0],
        "version": 0.2,
        "tvm_version": "0.18.0",
    }
    inp, _ = decode(json.dumps(row))
    assert relative_error(inp, HOST) <= 1e-4, config.to_entity()
