"""Records replayed on their own operator, without a network."""

from __future__ import annotations

import itertools

import pytest

from compiler import target as targets
from compiler.autotvm import operators
from compiler.autotvm.single_op_program import program_of
from compiler.errors import RecordError
from compiler.records.autotvm.record import LoggedTask, MeasureInput
from compiler.records.log_target import log_target
from schedules import strategy
from tests.compiler.autotvm.replay import relative_error

TARGET = targets.parse("llvm -mcpu=x86-64-v3")


def tensor(*shape):
    return ("TENSOR", shape, "float32")


def convolution(data, weight, strides=(1, 1), padding=(0, 0, 0, 0)):
    return (tensor(*data), tensor(*weight), strides, padding, (1, 1), "NCHW", "NCHW", "float32")


OWN = {
    "conv2d_direct.x86": convolution((1, 16, 9, 9), (32, 16, 3, 3)),
    "conv2d_winograd.x86": convolution((1, 32, 16, 16), (32, 32, 3, 3), padding=(1, 1, 1, 1)),
    "conv2d_winograd_parts.x86": convolution(
        (1, 64, 56, 56), (128, 64, 3, 3), strides=(2, 2), padding=(1, 1, 1, 1)
    ),
    "conv2d_strassen.x86": convolution((1, 512, 14, 14), (1024, 512, 1, 1)),
    "depthwise_conv2d_direct.x86": convolution((1, 32, 9, 9), (32, 1, 3, 3)),
    "dense_packed.x86": (tensor(5, 24), tensor(40, 24), None, "float32"),
    "dense_strassen.x86": (tensor(128, 768), tensor(768, 768), None, "float32"),
    "dense_tiled.x86": (tensor(5, 24), tensor(24, 40), (0, 1), "float32"),
    "batch_matmul_tiled.x86": (
        tensor(2, 5, 3, 8),
        tensor(2, 7, 3, 8),
        (0, 2, 1, 3),
        (0, 2, 3, 1),
        "float32",
    ),
}


def test_every_template_has_a_single_operator_program():
    templates = itertools.chain(*strategy.all_registered())
    names = {each.name for each in templates if each.task_args is not None}
    assert {strategy.operator_of(name) for name in names} <= {
        *operators.OPERATORS,
        "nn.conv1d_transpose",
        "nn.conv2d_transpose",
    }


@pytest.mark.parametrize("name", OWN)
def test_a_record_of_a_baton_template_replays_to_right_numbers(name):
    task = LoggedTask(name, OWN[name])
    found = operators.find(name, OWN[name], TARGET)
    config = found.implementation.fallback(found.workload, TARGET)
    inp = MeasureInput(log_target(TARGET), task, config)
    assert relative_error(inp, TARGET) <= 1e-4


def test_a_task_without_a_template_is_rejected_by_name():
    with pytest.raises(RecordError, match=r"no template bitserial_dense.x86"):
        program_of(LoggedTask("bitserial_dense.x86", OWN["dense_packed.x86"]), None)
