"""Any config of a CUDA template's space gives the right numbers, whatever its tiles.

Kernels run in the emulation. A config that asks for more threads or shared memory than a device
has is not built; the generic rules take its function.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from compiler.autotvm import decode
from schedules.conv2d import Conv2dWorkload
from schedules.conv_transpose import ConvTransposeWorkload
from schedules.cuda.templates import spaces  # noqa: F401  (registers the spaces)
from schedules.matmul import BatchMatmulWorkload, DenseWorkload, Operand
from schedules.space import space_of
from tests.schedules.cuda.checking import TARGET
from tests.schedules.cuda.emulation import COMPILER
from tests.schedules.cuda.replaying import emulate_record
from tests.sweep import examples

pytestmark = pytest.mark.skipif(COMPILER is None, reason="the emulation needs a C++ compiler")


def conv(channels=4, size=(6, 5), out=6, kernel=(3, 3), strides=(1, 1), padding=(1, 1, 1, 1),
         groups=1, batch=1):  # fmt: skip
    dilation = (1, 1)
    return Conv2dWorkload(
        batch, channels, *size, out, kernel, strides, padding, dilation, groups,
        constant_weight=True,
    )  # fmt: skip


def tensor(*shape):
    return ["TENSOR", list(shape), "float32"]


def conv_args(w, *more):
    weight = (w.out_channels, w.in_channels // w.groups, *w.kernel)
    data = (w.batch, w.in_channels, w.height, w.width)
    return [tensor(*data), tensor(*weight), w.strides, w.padding, w.dilation, *more, "float32"]


def transposed(w):
    args = [tensor(w.batch, w.in_channels, *w.size),
            tensor(w.in_channels, w.out_channels, *w.kernel),
            w.strides, w.padding, "float32", w.beyond]  # fmt: skip
    return args if w.rank == 1 else [*args, w.groups]


CONVS = [
    conv(),
    conv(size=(9, 7), kernel=(3, 1), strides=(2, 1), padding=(1, 0, 0, 0)),
    conv(1, (1, 40), 5, (1, 8), (1, 4), (0, 2, 0, 2)),
    conv(5, (7, 7), 3, (1, 1), padding=(0, 0, 0, 0), batch=2),
]
DEPTHWISE = [conv(6, out=6, groups=6), conv(4, (9, 9), 4, strides=(2, 2), groups=4, batch=2)]
GROUPED = [conv(8, out=6, groups=2), conv(9, (5, 5), 6, groups=3, batch=2)]
WINOGRAD = [conv(size=(8, 7)), conv(3, (6, 6), 4, batch=2), conv(2, (8, 8), 4, (5, 5))]
DENSE = [DenseWorkload((33,), 10, 24), DenseWorkload((40,), 9, 7)]
STACKS = [(2, 6, 10, 12), (1, 9, 4, 5)]
IMAGES = [
    ConvTransposeWorkload(1, 4, (3, 4), 3, (3, 3), (2, 2), (1, 1, 1, 1), (1, 1)),
    ConvTransposeWorkload(2, 4, (3, 3), 2, (2, 4), (1, 3), (0, 1, 1, 2), (0, 0), 2),
]
SIGNALS = [ConvTransposeWorkload(1, 6, (5,), 4, (4,), (3,), (1, 2), (1,))]


def stack(batch, m, n, k):
    rhs = Operand((batch, n, k), (0, 2, 1))
    return BatchMatmulWorkload(Operand.plain((batch, m, k)), rhs)


def stack_args(w):
    batch = w.batch[0]
    shape = [batch, w.m, w.n]
    return [tensor(batch, w.m, w.k), tensor(batch, w.n, w.k), shape, "float32", False, True]


CASES = [
    *(("conv2d_nchw.cuda", w, conv_args(w)) for w in CONVS),
    *(("depthwise_conv2d_nchw.cuda", w, conv_args(w)) for w in DEPTHWISE),
    *(("group_conv2d_nchw.cuda", w, conv_args(w, w.groups)) for w in GROUPED),
    *(("conv2d_nchw_winograd.cuda", w, conv_args(w)) for w in WINOGRAD),
    *(
        (name, w, [tensor(w.m, w.k), tensor(w.n, w.k), None, "float32"])
        for name in ("dense_small_batch.gpu", "dense_large_batch.gpu")
        for w in DENSE
    ),
    *(("batch_matmul.cuda", stack(*s), stack_args(stack(*s))) for s in STACKS),
    *(("conv2d_transpose_nchw.cuda", w, transposed(w)) for w in IMAGES),
    *(("conv1d_transpose_nchw.cuda", w, transposed(w)) for w in SIGNALS),
]


@pytest.mark.parametrize(("name", "workload", "args"), CASES, ids=[c[0] for c in CASES])
@examples(2, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_config_of_the_space_is_right(name, workload, args, data):
    space = space_of(name, workload, TARGET)
    config = space.get(data.draw(st.integers(0, space.range_length - 1)))
    row = {
        "input": ["cuda", name, args, {}],
        "config": {"index": 0, "code_hash": None, "entity": config.to_entity()},
        "result": [[1e-6], 0, 1.0, 1.0],
        "version": 0.2,
        "tvm_version": "0.18.0",
    }
    inp, _ = decode(json.dumps(row))
    with tempfile.TemporaryDirectory() as folder:
        assert emulate_record(inp, Path(folder)) < 1e-5
