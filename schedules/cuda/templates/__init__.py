"""AutoTVM's CUDA templates; importing this registers them with the strategy."""

from . import conv2d_template, conv_transpose_templates, matmul_templates, winograd_template
