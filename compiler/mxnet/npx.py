"""`npx`: what networks need beyond numpy: convolution, pooling, normalization, ..."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as _np

from compiler.errors import ArrayError

from . import np
from .array.control_flow import cond, foreach, while_loop
from .array.elementwise import as_array
from .array.files import load, save, savez
from .array.ndarray import ndarray, waitall
from .array.operator_function import declare, operator_function
from .array.value import call_site
from .device import Device, cpu, current_device, gpu, num_gpus


def _spatial(value: Any, rank: int) -> tuple[int, ...]:
    return (int(value),) * rank if isinstance(value, (int, _np.integer)) else tuple(value)


def _windows(inputs: list[Any], attrs: dict[str, Any]) -> None:
    """Give each spatial axis its number; what is missing follows from the weight."""
    rank = inputs[0].ndim - 2
    if len(inputs) > 1:
        weight, transposed = inputs[1], "adj" in attrs
        if attrs["kernel"] is None:
            attrs["kernel"] = weight.shape[2:]
        if attrs["num_filter"] is None:
            group = attrs["num_group"]
            attrs["num_filter"] = weight.shape[1] * group if transposed else weight.shape[0]
        attrs["no_bias"] = len(inputs) == 2
    for key, default in {"kernel": 1, "stride": 1, "dilate": 1, "pad": 0, "adj": 0}.items():
        if key in attrs:
            attrs[key] = _spatial(default if attrs[key] is None else attrs[key], rank)
    if attrs.get("target_shape") is not None:
        attrs["target_shape"] = _spatial(attrs["target_shape"], rank)


def _dense(inputs: list[Any], attrs: dict[str, Any]) -> None:
    if attrs["num_hidden"] is None:
        attrs["num_hidden"] = inputs[1].shape[0]
    attrs["no_bias"] = len(inputs) == 2


def _rectify(inputs: list[Any], attrs: dict[str, Any]) -> None:
    if attrs["act_type"] != "rrelu":
        del attrs["lower_bound"], attrs["upper_bound"]


def _embed(inputs: list[Any], attrs: dict[str, Any]) -> None:
    inputs[0] = as_array(inputs[0])
    del attrs["sparse_grad"]
    for axis, key in enumerate(("input_dim", "output_dim")):
        attrs[key] = attrs[key] or inputs[1].shape[axis]


def _check_mode(inputs: list[Any], attrs: dict[str, Any]) -> None:
    mode = attrs["mode"]
    if mode not in ("training", "always"):
        raise ArrayError(f"{call_site()}: dropout has the modes training and always, not {mode!r}")
    if mode == "always":
        raise ArrayError(f"{call_site()}: dropout at inference (mode 'always') is not supported")
    attrs["axes"] = tuple(attrs["axes"])


def _index_array(inputs: list[Any], attrs: dict[str, Any]) -> None:
    inputs[1] = as_array(inputs[1])


relu = declare("_npx_relu", "relu(data)", "x where positive, 0 elsewhere.")
sigmoid = declare("_npx_sigmoid", "sigmoid(data)", "1 / (1 + exp(-x)).")
log_sigmoid = declare("log_sigmoid", "log_sigmoid(data)", "The logarithm of sigmoid.")
softsign = declare("softsign", "softsign(data)", "x / (1 + |x|).")
mish = declare("mish", "mish(data)", "x * tanh(log(1 + exp(x))).")
erf = declare("erf", "erf(data)", "The error function.")
rsqrt = declare("rsqrt", "rsqrt(data)", "1 / sqrt(x).")
batch_flatten = declare("Flatten", "batch_flatten(data)", "All axes after the first become one.")
shape_array = declare("shape_array", "shape_array(data)", "The shape as an array.")
size_array = declare("size_array", "size_array(data)", "The number of elements as an array.")
stop_gradient = declare("BlockGrad", "stop_gradient(data)", "The data itself.")
activation = declare(
    "Activation",
    "activation(data; act_type='relu')",
    "relu, sigmoid, tanh, softrelu, softsign, log_sigmoid or mish.",
)
leaky_relu = declare(
    "LeakyReLU",
    "leaky_relu(data, gamma=None; act_type='leaky', slope=0.25, lower_bound=0.125, "
    "upper_bound=0.334)",
    "leaky, prelu (with gamma), elu, selu, gelu or rrelu.",
    _rectify,
)
gelu = declare(
    "LeakyReLU",
    "gelu(data)",
    "x * Phi(x), in the exact form.",
    lambda inputs, attrs: attrs.update(act_type="gelu", slope=0.25),
)
softmax = declare(
    "_npx_softmax", "softmax(data; axis=-1, temperature=None)", "exp(x) over its sum along an axis."
)
log_softmax = declare(
    "_npx_log_softmax", "log_softmax(data; axis=-1, temperature=None)", "The logarithm of softmax."
)
fully_connected = declare(
    "FullyConnected",
    "fully_connected(x, weight, bias=None; num_hidden=None, no_bias=True, flatten=True)",
    "x W^T + b; with flatten, on the flattened sample, else on the last axis.",
    _dense,
)
rnn = declare(
    "RNN",
    "rnn(data, parameters, state=None, state_cell=None; mode=None, state_size=None, num_layers=1, "
    "bidirectional=False, state_outputs=False, p=0.0, use_sequence_length=False, "
    "projection_size=None, lstm_state_clip_min=None, lstm_state_clip_max=None, "
    "lstm_state_clip_nan=False)",
    "Layers of rnn_relu, rnn_tanh, lstm or gru over (time, batch, features).",
)
convolution = declare(
    "Convolution",
    "convolution(data, weight, bias=None; kernel=None, stride=None, dilate=None, pad=None, "
    "num_filter=None, num_group=1, no_bias=False, layout=None)",
    "Convolution of 1 to 3 spatial axes; weight (filters, channels / groups, *kernel).",
    _windows,
)
deconvolution = declare(
    "Deconvolution",
    "deconvolution(data, weight, bias=None; kernel=None, stride=None, dilate=None, pad=None, "
    "adj=None, target_shape=None, num_filter=None, num_group=1, no_bias=True, layout=None)",
    "Transposed convolution; weight (channels, filters / groups, *kernel).",
    _windows,
)
pooling = declare(
    "Pooling",
    "pooling(data; kernel=1, stride=None, pad=0, pool_type='max', pooling_convention='valid', "
    "global_pool=False, count_include_pad=None, layout=None, p_value=None)",
    "Maximum, average, sum or p-norm over windows, or over all spatial axes.",
    _windows,
)
batch_norm = declare(
    "BatchNorm",
    "batch_norm(x, gamma, beta, running_mean, running_var; eps=0.001, momentum=0.9, "
    "fix_gamma=True, use_global_stats=False, axis=1)",
    "Normalized with the moving statistics.",
    lambda inputs, attrs: attrs.update(output_mean_var=False, axis=attrs.pop("axis")),
)
layer_norm = declare(
    "LayerNorm", "layer_norm(data, gamma, beta; axis=-1, eps=1e-05)", "Normalized along one axis."
)
group_norm = declare(
    "GroupNorm",
    "group_norm(data, gamma, beta; num_groups=1, eps=1e-05)",
    "Normalized over groups of channels.",
)
instance_norm = declare(
    "InstanceNorm",
    "instance_norm(data, gamma, beta; eps=0.001)",
    "Normalized over the spatial axes of every channel of every batch element.",
)
l2_normalization = declare(
    "L2Normalization",
    "l2_normalization(data; eps=1e-10, mode='instance')",
    "x / sqrt(sum(x * x) + eps) over a batch element, the channels, or the spatial axes.",
)
embedding = declare(
    "Embedding",
    "embedding(data, weight; input_dim=None, output_dim=None, sparse_grad=False)",
    "Rows of the weight at indices.",
    _embed,
)
dropout = declare(
    "Dropout",
    "dropout(data; p=0.5, mode='training', axes=())",
    "The data itself: dropout acts in training only.",
    _check_mode,
)
reshape = declare(
    "_npx_reshape",
    "reshape(a; newshape, reverse=False, order='C')",
    "Another shape, by the codes -1 infer, -2 copy, -3 drop a 1, -4 copy the rest, -5 merge two, "
    "-6 split into the next two.",
    lambda inputs, attrs: attrs.update(newshape=_spatial(attrs["newshape"], 1)),
)
reshape_like = declare("reshape_like", "reshape_like(lhs, rhs)", "The shape of another array.")
broadcast_like = declare(
    "broadcast_like", "broadcast_like(lhs, rhs)", "Repeated to the shape of another array."
)
arange_like = declare(
    "_contrib_arange_like",
    "arange_like(data; start=0.0, step=1.0, repeat=1, axis=None)",
    "Evenly spaced numbers: one per element of the data, or along one axis of them.",
)
one_hot = declare(
    "_npx_one_hot",
    "one_hot(data; depth, on_value=1.0, off_value=0.0, dtype=None)",
    "1 at the index along a new last axis, 0 elsewhere.",
)
pick = declare(
    "pick",
    "pick(data, index; axis=-1, mode='clip', keepdims=False)",
    "One element along an axis for each index.",
    _index_array,
)
topk = declare(
    "topk",
    "topk(data; k=1, axis=-1, ret_typ='indices', is_ascend=False, dtype=None)",
    'The k largest or smallest: their positions ("indices"), values ("value"), or "both".',
)
gather_nd = declare("gather_nd", "gather_nd(data, indices)", "Elements or slices at coordinates.")
batch_dot = declare(
    "batch_dot",
    "batch_dot(a, b; transpose_a=False, transpose_b=False)",
    "Matmul of the last two axes, with equal leading axes.",
)
sequence_mask = declare(
    "SequenceMask",
    "sequence_mask(data, sequence_length=None; use_sequence_length=False, value=0.0, axis=0)",
    "A value in place of what lies beyond the length of each sequence.",
)
slice_axis = declare(
    "slice_axis",
    "slice_axis(data; axis, begin, end)",
    "Begin and end on one axis.",
    lambda inputs, attrs: attrs.update(end="None" if attrs["end"] is None else attrs["end"]),
)
slice = declare(
    "slice",
    "slice(data; begin, end, step=None)",
    "Begin, end and step per axis.",
    lambda inputs, attrs: attrs.update(begin=tuple(attrs["begin"]), end=tuple(attrs["end"])),
)
smooth_l1 = declare("smooth_l1", "smooth_l1(data; scalar=1.0)", "Quadratic near zero, else linear.")
boolean_mask = declare(
    "_contrib_boolean_mask",
    "boolean_mask(data, index; axis=0)",
    "The slices along an axis at which the index, of one axis, is not zero.",
)
nonzero = declare(
    "_npx_nonzero",
    "nonzero(a)",
    "Indices of the elements that are not zero, one row each.",
    lambda inputs, attrs: inputs.__setitem__(0, as_array(inputs[0])),
)


def masked_softmax(data: ndarray, mask: ndarray, axis: int = -1, name: str = "") -> ndarray:
    """Softmax over the elements where the mask holds; 0 elsewhere."""
    low = np.where(mask, data, -1e30 if data.dtype != _np.float16 else -6e4)
    return np.where(mask, softmax(low, axis), 0, name)


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
