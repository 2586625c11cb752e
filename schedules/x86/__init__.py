"""Schedules for x86 CPUs; importing the package registers them with the strategy."""

from . import (
    batch_matmul,
    conv2d,
    conv2d_template,
    dense,
    depthwise,
    matmul_templates,
    winograd,
)

__all__ = [
    "batch_matmul",
    "conv2d",
    "conv2d_template",
    "dense",
    "depthwise",
    "matmul_templates",
    "winograd",
]
