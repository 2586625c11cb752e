"""Schedules for x86 CPUs; importing the package registers them with the strategy."""

# ruff: noqa: F401

from . import (
    attention,
    batch_matmul,
    conv2d,
    conv2d_amx,
    conv2d_int8_template,
    conv2d_template,
    conv3d_template,
    dense,
    dense_amx,
    depthwise,
    depthwise_dots,
    depthwise_template,
    group_conv2d_template,
    matmul_dots,
    matmul_int8_templates,
    matmul_of_bits,
    matmul_templates,
    recurrent,
    strassen_rules,
    winograd_polyphase_rules,
    winograd_rules,
)
from . import conv2d_dot as conv2d_dots
from . import conv2d_few_channels as narrow_conv2d
from . import dense_fp16_weight as dense_halves
