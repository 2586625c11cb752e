"""Relay's operators, one family per file; each makes Relay calls and knows what they are in Relax.

`relay.op.X` are the operators that `relay.X` are, and the families `relay.op.nn`, `image`, ...
"""

from __future__ import annotations

from typing import Any

from ...lazy import lazy_attributes

FAMILIES = ("nn", "image", "vision", "random", "annotation")
"""Families that scripts call by name: `relay.nn.conv2d`."""

_FUNCTIONS = {
    "tensor": """
        log log2 log10 tan cos cosh sin sinh acos acosh asin asinh atan atanh exp erf sqrt rsqrt
        sigmoid floor ceil trunc abs sign tanh negative bitwise_not isnan isfinite isinf
        logical_not fast_exp fast_tanh fast_erf round add subtract multiply divide floor_divide
        trunc_divide mod floor_mod trunc_mod power maximum minimum left_shift right_shift
        bitwise_and bitwise_or bitwise_xor logical_and logical_or logical_xor equal not_equal
        less less_equal greater greater_equal clip fixed_point_multiply
        fixed_point_multiply_per_axis copy device_copy""",
    "creation": """
        zeros ones zeros_like ones_like full full_like arange meshgrid one_hot shape_of
        ndarray_size tile""",
    "transform": """
        cast cast_like reinterpret expand_dims transpose squeeze broadcast_to broadcast_to_like
        collapse_sum_like collapse_sum_to concatenate stack split repeat reverse reverse_sequence
        layout_transform sliding_window matrix_set_diag trilu einsum""",
    "reshaping": "reshape reverse_reshape reshape_like",
    "indexing": """
        take gather gather_nd adv_index where scatter_elements scatter_nd segment_sum argwhere
        unravel_index""",
    "slicing": "strided_slice strided_set slice_like sequence_mask",
    "sparse": "sparse_to_dense sparse_fill_empty_rows sparse_reshape",
    "reduce": """
        sum max min mean prod all any argmax argmin variance std mean_variance mean_std
        logsumexp""",
    "algorithm": "sort argsort topk searchsorted invert_permutation unique cumsum cumprod",
    "signal": "dft stft",
}

FUNCTIONS = {name: family for family, names in _FUNCTIONS.items() for name in names.split()}
"""Operator functions at the top of `relay` to the module of this package that defines them."""

_REGISTRATION = (
    *("OpPattern", "register", "register_alter_op_layout", "register_convert_op_layout"),
    *("register_external_compiler", "register_fake_quantization_to_integer", "register_gradient"),
    *("register_infer_correct_layout", "register_legalize", "register_mixed_precision_conversion"),
    *("register_optional_fake_quantization_to_integer", "register_pattern", "register_stateful"),
)

__getattr__ = lazy_attributes(
    __name__,
    {
        **{name: f".{family}" for name, family in FUNCTIONS.items()},
        **{family: f".{family}" for family in FAMILIES},
        **dict.fromkeys(_REGISTRATION, ".op"),
        "const": "..expr",
        "get": ".registry",
        "op": ".op",
        "registry": ".registry",
    },
)


def __dir__() -> list[Any]:
    return sorted([*FUNCTIONS, *FAMILIES, "get"])
