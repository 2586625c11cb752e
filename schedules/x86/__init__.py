"""Schedules for x86 CPUs; importing the package registers them with the strategy."""

from . import (
    attention,
    batch_matmul,
    conv2d,
    conv2d_int8_template,
    conv2d_template,
    conv3d_template,
    dense,
    depthwise,
    depthwise_template,
    group_conv2d_template,
    matmul_int8_templates,
    matmul_templates,
    strassen,
    winograd,
    winograd_parts_rules,
)

__all__ = [
    "attention",
    "batch_matmul",
    "conv2d",
    "conv2d_int8_template",
    "conv2d_template",
    "conv3d_template",
    "dense",
    "depthwise",
    "depthwise_template",
    "group_conv2d_template",
    "matmul_int8_templates",
    "matmul_templates",
    "strassen",
    "winograd",
    "winograd_parts_rules",
]
