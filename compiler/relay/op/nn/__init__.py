"""`relay.nn`: neural network operators, one family per file."""

from .activation import (
    dropout,
    dropout_raw,
    fast_softmax,
    leaky_relu,
    log_softmax,
    prelu,
    relu,
    softmax,
)
from .bitserial import bitpack, bitserial_conv2d, bitserial_dense
from .contrib import (
    contrib_conv2d_gemm_weight_transform,
    contrib_conv2d_gemm_without_weight_transform,
    contrib_conv2d_nchwc,
    contrib_conv2d_winograd_nnpack_weight_transform,
    contrib_conv2d_winograd_weight_transform,
    contrib_conv2d_winograd_without_weight_transform,
    contrib_conv3d_winograd_weight_transform,
    contrib_conv3d_winograd_without_weight_transform,
    contrib_dense_pack,
    contrib_depthwise_conv2d_nchwc,
)
from .convolution import (
    conv1d,
    conv2d,
    conv2d_backward_weight,
    conv3d,
    correlation,
    deformable_conv2d,
)
from .conv_transpose import conv1d_transpose, conv2d_transpose, conv3d_transpose
from .linear import batch_flatten, batch_matmul, bias_add, dense, matmul
from .loss import cross_entropy, cross_entropy_with_logits, nll_loss
from .normalization import (
    batch_norm,
    group_norm,
    instance_norm,
    l2_normalize,
    layer_norm,
    lrn,
)
from .padding import dilate, mirror_pad, pad
from .pooling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    adaptive_max_pool3d,
    avg_pool1d,
    avg_pool2d,
    avg_pool2d_grad,
    avg_pool3d,
    global_avg_pool1d,
    global_avg_pool2d,
    global_avg_pool3d,
    global_max_pool1d,
    global_max_pool2d,
    global_max_pool3d,
    max_pool1d,
    max_pool2d,
    max_pool2d_grad,
    max_pool3d,
)
from .rearrange import (
    batch_to_space_nd,
    depth_to_space,
    space_to_batch_nd,
    space_to_depth,
)
from .sparse import sparse_add, sparse_conv2d, sparse_dense, sparse_transpose
from .upsampling import upsampling, upsampling3d
from ..slicing import fifo_buffer
