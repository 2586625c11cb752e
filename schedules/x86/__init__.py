"""Schedules for x86 CPUs; importing the package registers them with the strategy.

Implementations of equal cost are tried in the order of registration, which is the order here.
"""

# ruff: noqa: I001

from .attention import attention
from .matmul import batch_matmul
from .conv import conv2d, conv2d_amx
from .templates import conv2d_int8_template, conv2d_template, conv3d_template
from .matmul import dense, dense_amx
from .conv import depthwise, depthwise_dot
from .templates import depthwise_template, group_conv2d_template
from .matmul import matmul_dot
from .templates import matmul_int8_templates
from .matmul import low_bit_matmul
from .templates import matmul_templates
from .matmul import recurrent, strassen_rules
from .conv import winograd_polyphase_rules, winograd_rules, conv2d_dot, conv2d_few_channels
from .matmul import dense_fp16_weight
