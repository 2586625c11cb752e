"""`npx`: what networks need beyond numpy: convolution, pooling, normalization, ..."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as _np

from compiler.errors import ArrayError

from . import np
from .array.control_flow import cond, foreach, while_loop
from .array.elementwise import as_array
from .array.files import load, save, savez
from .array.invoke import invoke
from .array.ndarray import ndarray, waitall
from .array.operator_function import operator_function
from .array.value import call_site
from .array.wrap import dtype_name
from .device import Device, cpu, current_device, gpu, num_gpus


def _named(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with the argument `name`: what its result's node is called in a trace."""

    @wraps(function)
    def call(*args: Any, name: str | None = None, **kwargs: Any) -> Any:
        found = function(*args, **kwargs)
        result = found[0] if isinstance(found, (list, tuple)) and found else found
        if name and isinstance(result, ndarray) and result._value.record is not None:
            result._value.record.name = name
        return found

    return call


def _function(op: str) -> Callable[[ndarray], ndarray]:
    def function(data: ndarray) -> ndarray:
        return invoke(op, [data])[0]

    function.__doc__ = f"The operator {op}."
    return _named(function)


relu, sigmoid = _function("_npx_relu"), _function("_npx_sigmoid")
log_sigmoid, softsign, mish = _function("log_sigmoid"), _function("softsign"), _function("mish")
erf, rsqrt = _function("erf"), _function("rsqrt")
batch_flatten = _function("Flatten")
shape_array, size_array = _function("shape_array"), _function("size_array")
stop_gradient = _function("BlockGrad")


@_named
def activation(data: ndarray, act_type: str = "relu") -> ndarray:
    """relu, sigmoid, tanh, softrelu, softsign, log_sigmoid or mish."""
    return invoke("Activation", [data], {"act_type": act_type})[0]


@_named
def leaky_relu(
    data: ndarray,
    gamma: ndarray | None = None,
    act_type: str = "leaky",
    slope: float = 0.25,
    lower_bound: float = 0.125,
    upper_bound: float = 0.334,
) -> ndarray:
    """leaky, prelu (with gamma), elu, selu, gelu or rrelu."""
    attrs = {"act_type": act_type, "slope": slope}
    if act_type == "rrelu":
        attrs |= {"lower_bound": lower_bound, "upper_bound": upper_bound}
    return invoke("LeakyReLU", [data] if gamma is None else [data, gamma], attrs)[0]


@_named
def gelu(data: ndarray) -> ndarray:
    """x * Phi(x), in the exact form."""
    return leaky_relu(data, act_type="gelu")


@_named
def softmax(data: ndarray, axis: int = -1, temperature: float | None = None) -> ndarray:
    """exp(x) over its sum along an axis."""
    return invoke("_npx_softmax", [data], {"axis": axis, "temperature": temperature})[0]


@_named
def log_softmax(data: ndarray, axis: int = -1, temperature: float | None = None) -> ndarray:
    """The logarithm of softmax."""
    return invoke("_npx_log_softmax", [data], {"axis": axis, "temperature": temperature})[0]


@_named
def masked_softmax(data: ndarray, mask: ndarray, axis: int = -1) -> ndarray:
    """Softmax over the elements where the mask holds; 0 elsewhere."""
    low = np.where(mask, data, -1e30 if data.dtype != _np.float16 else -6e4)
    return np.where(mask, softmax(low, axis), 0)


@_named
def fully_connected(
    x: ndarray,
    weight: ndarray,
    bias: ndarray | None = None,
    num_hidden: int | None = None,
    no_bias: bool = True,
    flatten: bool = True,
) -> ndarray:
    """x W^T + b; with flatten, on the flattened sample, else on the last axis."""
    inputs = [x, weight] if bias is None else [x, weight, bias]
    hidden = weight.shape[0] if num_hidden is None else num_hidden
    attrs = {"num_hidden": hidden, "no_bias": bias is None, "flatten": flatten}
    return invoke("FullyConnected", inputs, attrs)[0]


def _spatial(value: Any, rank: int) -> tuple[int, ...]:
    return (int(value),) * rank if isinstance(value, (int, _np.integer)) else tuple(value)


def _window(kernel: Any, stride: Any, dilate: Any, pad: Any, rank: int) -> dict[str, Any]:
    return {
        "kernel": _spatial(kernel, rank),
        "stride": _spatial(1 if stride is None else stride, rank),
        "dilate": _spatial(1 if dilate is None else dilate, rank),
        "pad": _spatial(0 if pad is None else pad, rank),
    }


@_named
def convolution(
    data: ndarray,
    weight: ndarray,
    bias: ndarray | None = None,
    kernel: Any = None,
    stride: Any = None,
    dilate: Any = None,
    pad: Any = None,
    num_filter: int | None = None,
    num_group: int = 1,
    no_bias: bool = False,
    layout: str | None = None,
) -> ndarray:
    """Convolution of one to three spatial axes; weight (filters, channels / groups, *kernel)."""
    rank = data.ndim - 2
    inputs = [data, weight] if bias is None else [data, weight, bias]
    attrs = {
        **_window(weight.shape[2:] if kernel is None else kernel, stride, dilate, pad, rank),
        "num_filter": weight.shape[0] if num_filter is None else num_filter,
        "num_group": num_group,
        "no_bias": bias is None,
        "layout": layout,
    }
    return invoke("Convolution", inputs, attrs)[0]


@_named
def deconvolution(
    data: ndarray,
    weight: ndarray,
    bias: ndarray | None = None,
    kernel: Any = None,
    stride: Any = None,
    dilate: Any = None,
    pad: Any = None,
    adj: Any = None,
    target_shape: Any = None,
    num_filter: int | None = None,
    num_group: int = 1,
    no_bias: bool = True,
    layout: str | None = None,
) -> ndarray:
    """Transposed convolution; weight (channels, filters / groups, *kernel)."""
    rank = data.ndim - 2
    inputs = [data, weight] if bias is None else [data, weight, bias]
    attrs = {
        **_window(weight.shape[2:] if kernel is None else kernel, stride, dilate, pad, rank),
        "adj": _spatial(0 if adj is None else adj, rank),
        "target_shape": None if target_shape is None else _spatial(target_shape, rank),
        "num_filter": weight.shape[1] * num_group if num_filter is None else num_filter,
        "num_group": num_group,
        "no_bias": bias is None,
        "layout": layout,
    }
    return invoke("Deconvolution", inputs, attrs)[0]


@_named
def pooling(
    data: ndarray,
    kernel: Any = 1,
    stride: Any = None,
    pad: Any = 0,
    pool_type: str = "max",
    pooling_convention: str = "valid",
    global_pool: bool = False,
    count_include_pad: bool | None = None,
    layout: str | None = None,
    p_value: int | None = None,
) -> ndarray:
    """Maximum, average, sum or p-norm over windows, or over all spatial axes."""
    rank = data.ndim - 2
    attrs = {
        "kernel": _spatial(kernel, rank),
        "stride": _spatial(1 if stride is None else stride, rank),
        "pad": _spatial(pad, rank),
        "pool_type": pool_type,
        "pooling_convention": pooling_convention,
        "global_pool": global_pool,
        "count_include_pad": count_include_pad,
        "layout": layout,
        "p_value": p_value,
    }
    return invoke("Pooling", [data], attrs)[0]


@_named
def batch_norm(
    x: ndarray,
    gamma: ndarray,
    beta: ndarray,
    running_mean: ndarray,
    running_var: ndarray,
    eps: float = 1e-3,
    momentum: float = 0.9,
    fix_gamma: bool = True,
    use_global_stats: bool = False,
    axis: int = 1,
) -> ndarray:
    """Normalized with the moving statistics."""
    attrs = {
        "eps": eps,
        "momentum": momentum,
        "fix_gamma": fix_gamma,
        "use_global_stats": use_global_stats,
        "output_mean_var": False,
        "axis": axis,
    }
    return invoke("BatchNorm", [x, gamma, beta, running_mean, running_var], attrs)[0]


@_named
def layer_norm(
    data: ndarray, gamma: ndarray, beta: ndarray, axis: int = -1, eps: float = 1e-5
) -> ndarray:
    """Normalized along one axis."""
    return invoke("LayerNorm", [data, gamma, beta], {"axis": axis, "eps": eps})[0]


@_named
def group_norm(
    data: ndarray, gamma: ndarray, beta: ndarray, num_groups: int = 1, eps: float = 1e-5
) -> ndarray:
    """Normalized over groups of channels."""
    return invoke("GroupNorm", [data, gamma, beta], {"num_groups": num_groups, "eps": eps})[0]


@_named
def instance_norm(data: ndarray, gamma: ndarray, beta: ndarray, eps: float = 1e-3) -> ndarray:
    """Normalized over the spatial axes of every channel of every sample."""
    return invoke("InstanceNorm", [data, gamma, beta], {"eps": eps})[0]


@_named
def l2_normalization(data: ndarray, eps: float = 1e-10, mode: str = "instance") -> ndarray:
    """x / sqrt(sum(x * x) + eps) over a sample, the channels, or the spatial axes."""
    return invoke("L2Normalization", [data], {"eps": eps, "mode": mode})[0]


@_named
def embedding(
    data: ndarray,
    weight: ndarray,
    input_dim: int | None = None,
    output_dim: int | None = None,
    sparse_grad: bool = False,
) -> ndarray:
    """Rows of the weight at indices."""
    attrs = {"input_dim": input_dim or weight.shape[0], "output_dim": output_dim or weight.shape[1]}
    return invoke("Embedding", [as_array(data), weight], attrs)[0]


@_named
def dropout(data: ndarray, p: float = 0.5, mode: str = "training", axes: Any = ()) -> ndarray:
    """The data itself: dropout acts in training only."""
    if mode not in ("training", "always"):
        raise ArrayError(f"{call_site()}: dropout has the modes training and always, not {mode!r}")
    if mode == "always":
        raise ArrayError(f"{call_site()}: dropout at inference (mode 'always') is not supported")
    return invoke("Dropout", [data], {"p": p, "mode": mode, "axes": tuple(axes)})[0]


@_named
def reshape(a: ndarray, newshape: Any, reverse: bool = False, order: str = "C") -> ndarray:
    """Another shape, by the codes -1 infer, -2 copy, -3 drop a 1, -4 copy the rest, -5 merge two,
    -6 split into the next two."""
    codes = (newshape,) if isinstance(newshape, int) else tuple(newshape)
    return invoke("_npx_reshape", [a], {"newshape": codes, "reverse": reverse, "order": order})[0]


@_named
def reshape_like(lhs: ndarray, rhs: ndarray) -> ndarray:
    """The shape of another array."""
    return invoke("reshape_like", [lhs, rhs])[0]


@_named
def broadcast_like(lhs: ndarray, rhs: ndarray) -> ndarray:
    """Repeated to the shape of another array."""
    return invoke("broadcast_like", [lhs, rhs])[0]


@_named
def arange_like(
    data: ndarray, start: float = 0.0, step: float = 1.0, repeat: int = 1, axis: int | None = None
) -> ndarray:
    """Evenly spaced numbers, as many as the data have elements, or along one axis of them."""
    attrs = {"start": start, "step": step, "repeat": repeat, "axis": axis}
    return invoke("_contrib_arange_like", [data], attrs)[0]


@_named
def one_hot(
    data: ndarray, depth: int, on_value: float = 1.0, off_value: float = 0.0, dtype: Any = None
) -> ndarray:
    """1 at the index along a new last axis, 0 elsewhere."""
    attrs = {
        "depth": depth,
        "on_value": on_value,
        "off_value": off_value,
        "dtype": dtype_name(dtype),
    }
    return invoke("_npx_one_hot", [data], attrs)[0]


@_named
def pick(
    data: ndarray, index: ndarray, axis: int = -1, mode: str = "clip", keepdims: bool = False
) -> ndarray:
    """One element along an axis for each index."""
    attrs = {"axis": axis, "mode": mode, "keepdims": keepdims}
    return invoke("pick", [data, as_array(index)], attrs)[0]


@_named
def topk(
    data: ndarray,
    k: int = 1,
    axis: int = -1,
    ret_typ: str = "indices",
    is_ascend: bool = False,
    dtype: Any = None,
) -> Any:
    """The k largest or smallest: their positions ("indices"), values ("value"), or "both"."""
    attrs = {
        "k": k,
        "axis": axis,
        "ret_typ": ret_typ,
        "is_ascend": is_ascend,
        "dtype": dtype_name(dtype),
    }
    found = invoke("topk", [data], attrs)
    return found if ret_typ == "both" else found[0]


@_named
def gather_nd(data: ndarray, indices: ndarray) -> ndarray:
    """Elements or slices at coordinates."""
    return invoke("gather_nd", [data, indices])[0]


@_named
def batch_dot(
    a: ndarray, b: ndarray, transpose_a: bool = False, transpose_b: bool = False
) -> ndarray:
    """Matrix products of the last two axes, with equal leading axes."""
    attrs = {"transpose_a": transpose_a, "transpose_b": transpose_b}
    return invoke("batch_dot", [a, b], attrs)[0]


@_named
def sequence_mask(
    data: ndarray,
    sequence_length: ndarray | None = None,
    use_sequence_length: bool = False,
    value: float = 0.0,
    axis: int = 0,
) -> ndarray:
    """A value in place of what lies beyond the length of each sequence."""
    inputs = [data] if sequence_length is None else [data, sequence_length]
    attrs = {"use_sequence_length": use_sequence_length, "value": value, "axis": axis}
    return invoke("SequenceMask", inputs, attrs)[0]


@_named
def slice_axis(data: ndarray, axis: int, begin: int, end: int | None) -> ndarray:
    """Begin and end on one axis."""
    attrs = {"axis": axis, "begin": begin, "end": "None" if end is None else end}
    return invoke("slice_axis", [data], attrs)[0]


@_named
def slice(data: ndarray, begin: Sequence[Any], end: Sequence[Any], step: Any = None) -> ndarray:
    """Begin, end and step per axis."""
    attrs = {"begin": tuple(begin), "end": tuple(end), "step": step}
    return invoke("slice", [data], attrs)[0]


@_named
def smooth_l1(data: ndarray, scalar: float = 1.0) -> ndarray:
    """Quadratic near zero, linear elsewhere."""
    return invoke("smooth_l1", [data], {"scalar": scalar})[0]


@_named
def nonzero(a: ndarray) -> ndarray:
    """Indices of the elements that are not zero, one row each."""
    return np.argwhere(a)


def boolean_mask(data: ndarray, index: ndarray, axis: int = 0) -> ndarray:
    """The slices along an axis at which the index, of one axis, is not zero."""
    return invoke("_contrib_boolean_mask", [data, index], {"axis": axis})[0]


def set_np(shape: bool = True, array: bool = True, dtype: bool = False) -> None:
    """Numpy semantics are always on."""


def reset_np() -> None:
    """Numpy semantics are always on."""


def is_np_array() -> bool:
    """True."""
    return True


is_np_shape = is_np_array


def __getattr__(name: str) -> Callable[..., Any]:
    """An operator by the name that it has in a symbol, such as `npx.FullyConnected`."""
    return operator_function(name)
