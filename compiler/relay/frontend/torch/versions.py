"""The versions of PyTorch that imports are tested with, and what their exporter is trusted with."""

from __future__ import annotations

import functools
import logging

import torch

logger = logging.getLogger("baton.relay")

TESTED = ("2.13", "2.14")

_EXPORTED = """
Delete __and_ __contains_ __derive_index __getitem_ __interpolate __is_ __isnot_ __lshift_ __not_
__or_ __range_length __rshift_ __xor_ _conj _convolution _convolution_mode _dim_arange
_floor_divide _log_softmax _pack_padded_sequence _pad_packed_sequence _reshape_from_tensor
_sample_dirichlet _set_item _shape_as_tensor _standard_gamma _unique _unique2 _weight_norm abs
acos adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d
adaptive_max_pool2d adaptive_max_pool3d add addcmul addmm alias all alpha_dropout alpha_dropout_
amax amin aminmax any append arange argmax argmin argsort as_strided as_tensor asin atan atan2
atleast_1d atleast_2d atleast_3d avg_pool1d avg_pool2d avg_pool3d baddbmm batch_norm bernoulli
binary_cross_entropy_with_logits bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bmm
broadcast_tensors broadcast_to bucketize cat cdist ceil celu chunk clamp clamp_max clamp_min clone
conj_physical constant_pad_nd contiguous conv1d conv2d conv3d conv_tbc conv_transpose1d
conv_transpose2d conv_transpose3d convolution cos cosine_similarity cross cross_entropy_loss
cumsum dequantize detach diagonal dim div dot dropout dropout_ einsum elu embedding embedding_bag
embedding_renorm empty empty_like eq erf exp expand expand_as eye fake_quantize_per_channel_affine
fake_quantize_per_tensor_affine feature_alpha_dropout feature_alpha_dropout_ feature_dropout
feature_dropout_ fill flatten flip floor floor_divide floordiv fmod frobenius_norm full full_like
gather ge gelu get_pool_ceil_padding glu grid_sampler group_norm gru gt hann_window hardshrink
hardsigmoid hardswish hardtanh hstack im2col index index_add index_copy index_fill index_put
index_select insert instance_norm is_floating_point is_pinned isfinite isinf isnan item kl_div
layer_norm le leaky_relu len lerp lift linalg_cross linalg_det linalg_matrix_norm linalg_norm
linalg_vector_norm linear linspace list log log10 log1p log2 log_sigmoid log_softmax logdet
logical_and logical_not logical_or logical_xor logit logsumexp lstm lstm_cell lt masked_fill
masked_fill_ masked_scatter masked_select matmul max max_pool1d max_pool1d_with_indices max_pool2d
max_pool2d_with_indices max_pool3d max_pool3d_with_indices maximum mean meshgrid min minimum mish
mm movedim mse_loss mul multinomial mv nan_to_num narrow native_dropout native_layer_norm ne neg
new_empty new_full new_ones new_zeros nll_loss nll_loss2d nll_loss_nd nonzero nonzero_numpy norm
normal numel numpy_T one_hot ones ones_like outer pad pairwise_distance permute pixel_shuffle
pixel_unshuffle pop pow prelu prod quantize_per_tensor rand rand_like randint randint_like randn
randn_like reciprocal reflection_pad1d reflection_pad2d reflection_pad3d relu relu6 remainder
repeat repeat_interleave replication_pad1d replication_pad2d replication_pad3d reshape reshape_as
resolve_conj resolve_neg rnn_relu rnn_tanh roll round rrelu rsqrt rsub scalar_tensor
scaled_dot_product_attention scan scatter scatter_add scatter_reduce select selu sigmoid sign silu
sin size slice softmax softplus softshrink sort split split_with_sizes sqrt square squeeze stack
std std_mean stft sub sum t take tan tanh tanhshrink tensor tensor_split tensordot threshold tile
to topk transpose tril triu true_divide type_as unbind unflatten unfold unique_dim unsafe_chunk
unsafe_split unsafe_split_with_sizes unsqueeze upsample_bicubic2d upsample_bilinear2d
upsample_linear1d upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_trilinear3d
var var_mean view view_as vstack where zero zeros zeros_like
"""

EXPORTED = frozenset(_EXPORTED.split())
"""Operators of the namespace aten that the exporter records as they are, at its operator set.

All others are decomposed, see `call.py`, in every version of PyTorch alike.
"""


def is_exported(name: str) -> bool:
    """Whether an operator, "aten::relu_", is recorded as it is; those of other namespaces are."""
    namespace, _, plain = name.partition("::")
    return namespace != "aten" or plain in EXPORTED or plain.removesuffix("_") in EXPORTED


@functools.cache
def warn_unless_tested() -> None:
    """Say once in a process that the installed version is not one that imports are tested with."""
    version = torch.__version__
    if ".".join(version.split(".")[:2]) not in TESTED:
        logger.warning(
            "PyTorch %s is not one of those that from_pytorch is tested with (%s): compare results "
            "with PyTorch's own, and look here first if an operator is refused",
            version,
            ", ".join(TESTED),
        )
