"""Calls of PyTorch operators during an export: as they are, decomposed, or left to the caller."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch.utils import _pytree

from compiler.errors import FrontendError, UnsupportedOperatorError

from ..onnx.node import Node
from . import quantized as pytorch_quantized
from .aliases import Aliases
from .converted import CONVERTED
from .extents import call_with_open_extents, reads_open_extents
from .versions import is_exported, warn_unless_tested

OPSET = 17
"""The operator set of the export: the first with LayerNormalization."""

DOMAIN, CUSTOM = "baton.torch", "Custom"


class Caller:
    """Calls operators so that what the export records can be imported.

    An operator of `custom` ("aten::relu" to `(inputs, input_types) -> expression`) is recorded as
    one node, for the caller's converter. One that PyTorch's ONNX exporter does not know is called
    as its decomposition into others that it does; the rest is called as it is.
    """

    def __init__(self, custom: Mapping[str, Callable[..., Any]]) -> None:
        self._custom = {**CONVERTED, **custom}
        self._calls: list[_CustomCall] = []
        warn_unless_tested()
        self.begin()

    def begin(self) -> None:
        """Forget the calls of an earlier export."""
        self._calls.clear()
        self.aliases = Aliases()

    def __call__(self, op: torch._ops.OpOverload, args: Sequence[Any], kwargs: Any) -> Any:
        """The operator's results; raises where an operand's value is not what the export has."""
        self.aliases.require_current(op._schema.name, (args, kwargs))
        results = self._called(op, args, kwargs)
        self.aliases.record(op, args, results)
        return results

    def _called(self, op: torch._ops.OpOverload, args: Sequence[Any], kwargs: Any) -> Any:
        name = op._schema.name
        if name in self._custom:
            call = _CustomCall(name, self._custom[name], op, args, kwargs)
            self._calls.append(call)
            return _RecordCustom.apply(call, len(self._calls) - 1, *call.tensors)
        if name in _VOLUMETRIC and args[0].dim() == 5:
            return self(_VOLUMETRIC[name], args, kwargs)
        if name in _REWRITTEN:
            return _REWRITTEN[name](op, args, kwargs)
        if not is_exported(name):
            decomposed = op.decompose(*args, **kwargs)
            if decomposed is not NotImplemented:
                return decomposed
            if op in decomposition_table:
                return decomposition_table[op](*args, **kwargs)
        if reads_open_extents(op, args, kwargs):
            return call_with_open_extents(op, args, kwargs)
        return op(*args, **kwargs)

    def converters(self) -> dict[tuple[str, str], Callable[[Node], Any]]:
        """The converter of the nodes that stand for custom operators."""
        if not self._calls:
            return {}
        return {(DOMAIN, CUSTOM): lambda node: self._calls[node.attr("index")].convert(node)}


class _CustomCall:
    """One call of an operator that has a converter of the caller's own."""

    def __init__(
        self, name: str, convert: Callable[..., Any], op: Any, args: Sequence[Any], kwargs: Any
    ) -> None:
        self.name = name
        self._convert = convert
        self._op = op
        declared = op._schema.arguments
        values = _bound(op, args, kwargs)
        self._leaves, self._structure = _pytree.tree_flatten((values, {}))
        self._count = len(declared)
        self._positional = [not argument.kwarg_only for argument in declared]
        self._names = [argument.name for argument in declared]
        self.tensors = [leaf for leaf in self._leaves if isinstance(leaf, torch.Tensor)]

    def run(self, tensors: Sequence[torch.Tensor]) -> Any:
        """The operator's own result."""
        values = self._arguments(tensors)
        split = self._positional.index(False) if False in self._positional else self._count
        return self._op(*values[:split], **dict(zip(self._names[split:], values[split:])))

    def convert(self, node: Node) -> Any:
        operands = self._arguments([node[i] for i in range(len(self.tensors))])
        types = [_type_name(value) for value in self._arguments(self.tensors)]
        result = self._convert(operands, types)
        return result.astuple() if hasattr(result, "astuple") else result

    def _arguments(self, tensors: Sequence[Any]) -> list[Any]:
        rest = iter(tensors)
        leaves = [next(rest) if isinstance(leaf, torch.Tensor) else leaf for leaf in self._leaves]
        return _pytree.tree_unflatten(leaves, self._structure)[0]


class _RecordCustom(torch.autograd.Function):
    """Runs a custom call; the export sees one node."""

    @staticmethod
    def forward(ctx: Any, call: _CustomCall, index: int, *tensors: torch.Tensor) -> Any:
        result = call.run(tensors)
        if isinstance(result, (list, tuple)) and not all(
            isinstance(item, torch.Tensor) for item in result
        ):
            raise FrontendError(f"the custom operator {call.name} returns more than tensors")
        return tuple(result) if isinstance(result, list) else result

    @staticmethod
    def symbolic(g: Any, call: _CustomCall, index: int, *tensors: Any) -> Any:
        result = call.run([torch.empty_like(tensor) for tensor in call.tensors])
        results = [result] if isinstance(result, torch.Tensor) else list(result)
        made = g.op(f"{DOMAIN}::{CUSTOM}", *tensors, index_i=index, outputs=len(results))
        made = [made] if len(results) == 1 else list(made)
        for value, example in zip(made, results):
            value.setType(torch._C.TensorType.create_from_tensor(example))
        return made[0] if isinstance(result, torch.Tensor) else tuple(made)


def _type_name(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return str(value.dtype).removeprefix("torch.")
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, (int, float)):
        return "int32" if isinstance(value, int) else "float32"
    return "ListType" if isinstance(value, (list, tuple)) else "UnsupportedType"


_VOLUMETRIC = {"aten::grid_sampler": torch.ops.aten.grid_sampler_3d.default}
"""Names on volumes of operators that the exporter supports on images only."""


def _scatter(op: Any, args: Sequence[Any], kwargs: Any) -> Any:
    """ONNX wants as many updates as indices; PyTorch uses the first of more."""
    data, dim, index, source, *rest = args
    if index.numel() == 0:
        return _written(op, data, data.clone())
    if isinstance(source, torch.Tensor) and source.dim() == index.dim():
        for axis, extent in enumerate(index.shape):
            source = source.narrow(axis, 0, extent)
    return op(data, dim, index, source, *rest, **kwargs)


def _scatter_reduce(op: Any, args: Sequence[Any], kwargs: Any) -> Any:
    """ONNX's scattering knows no means: the sums, by how many were added."""
    data, dim, index, source, reduce, with_own = _bound(op, args, kwargs)
    if reduce != "mean":
        return op(*args, **kwargs)
    ones = torch.ones(source.shape, dtype=data.dtype)
    own = torch.ones(data.shape, dtype=data.dtype)
    count = _scatter_reduce_sum(own, dim, index, ones, with_own)
    total = _scatter_reduce_sum(data, dim, index, source, with_own)
    rounding = None if data.is_floating_point() else "floor"
    return _written(op, data, torch.div(total, count, rounding_mode=rounding))


def _scatter_reduce_sum(
    data: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, with_own: bool
) -> torch.Tensor:
    """Sums at the places that are scattered to, with or without what was there."""
    if not with_own:
        data = torch.scatter(data, dim, index, 0)
    return torch.scatter_add(data, dim, index, source)


def _cross_entropy(op: Any, args: Sequence[Any], kwargs: Any) -> Any:
    """The exporter takes probabilities for numbers of classes."""
    if not args[1].is_floating_point():
        return op(*args, **kwargs)
    scores, wanted, weight, reduction, _, smoothing = _bound(op, args, kwargs)
    axis = min(1, scores.dim() - 1)
    if smoothing:
        wanted = wanted * (1 - smoothing) + smoothing / scores.shape[axis]
    if weight is not None:
        wanted = wanted * weight.reshape([-1, *[1] * (scores.dim() - axis - 1)])
    losses = -(torch.log_softmax(scores, axis) * wanted).sum(axis)
    count = max(1, losses.numel())  # PyTorch's mean is over samples, whatever their weights
    return (losses, losses.sum() / count, losses.sum())[reduction]


def _of_any_dtype(op: Any, args: Sequence[Any], kwargs: Any) -> Any:
    """The exporter takes all and any for operators on booleans alone; bytes stay bytes."""
    data, *rest = args
    found = op(data if data.dtype == torch.bool else data != 0, *rest, **kwargs)
    return found.to(torch.uint8) if data.dtype == torch.uint8 else found


def _zeros(op: Any, args: Sequence[Any], kwargs: Any) -> Any:
    """Make uninitialized tensors the same in each import."""
    made = op(*args, **kwargs)
    return torch.zeros(made.shape, dtype=made.dtype)


def _adaptive(pool: Callable[[torch.Tensor, int, list[tuple[int, int]]], Any]) -> Any:
    """Windows of different sizes, which ONNX has no pooling for: `pool`, one axis at a time."""

    def call(op: Any, args: Sequence[Any], kwargs: Any) -> Any:
        data, sizes = args
        extents = data.shape[-len(sizes) :]
        if all(extent % size == 0 for extent, size in zip(extents, sizes)):
            return op(*args, **kwargs)
        for offset, (extent, size) in enumerate(zip(extents, sizes)):
            windows = [  # which may overlap
                (i * extent // size, ((i + 1) * extent + size - 1) // size) for i in range(size)
            ]
            data = pool(data, offset - len(sizes), windows)
        return (data, None) if "max" in op._schema.name else data  # no places of the maxima

    return call


def _averages(data: torch.Tensor, axis: int, windows: list[tuple[int, int]]) -> torch.Tensor:
    """Averages as a matmul with the weights of each window."""
    extent = data.shape[axis]
    columns = []
    for start, stop in windows:
        inside = [1.0 / (stop - start)] * (stop - start)
        columns.append([0.0] * start + inside + [0.0] * (extent - stop))
    means = torch.tensor(columns, dtype=data.dtype).T
    return torch.matmul(data.transpose(axis, -1), means).transpose(axis, -1)


def _maxima(data: torch.Tensor, axis: int, windows: list[tuple[int, int]]) -> torch.Tensor:
    parts = [data.narrow(axis, start, stop - start).amax(axis, True) for start, stop in windows]
    return torch.cat(parts, axis)


def _maximum(op: Any, args: Sequence[Any], kwargs: Any) -> Any:
    """ONNX's pooling takes batches."""
    data, *rest = args
    if data.dim() > int(op._schema.name[-2]) + 1:
        return op(*args, **kwargs)
    return op(data.unsqueeze(0), *rest, **kwargs).squeeze(0)


def _threshold(op: Any, args: Sequence[Any], kwargs: Any) -> Any:
    """The exporter knows a threshold and a value of 0 alone."""
    data, threshold, value = _bound(op, args, kwargs)
    replaced = torch.where(data <= threshold, torch.tensor(value, dtype=data.dtype), data)
    return _written(op, data, replaced)


def _truncated(_op: Any, args: Sequence[Any], _kwargs: Any) -> Any:
    data = args[0]
    return torch.where(data < 0, data.ceil(), data.floor()) if data.is_floating_point() else data


def _average(op: Any, args: Sequence[Any], kwargs: Any) -> Any:
    """The exporter forgets a divisor of the caller's own."""
    data, kernel, stride, padding, ceil, _, divisor = _bound(op, args, kwargs)
    if divisor is None:
        return op(*args, **kwargs)
    rank = int(op._schema.name[-2])
    kernel, padding = (list(each) * (rank // len(each)) for each in (kernel, padding))
    stride = list(stride) * (rank // len(stride)) if stride else kernel
    extents = op(data, kernel, stride, padding, ceil).shape[-rank:]
    width = []  # the last axis first
    for axis in reversed(range(rank)):
        covered = (extents[axis] - 1) * stride[axis] + kernel[axis]
        width += [padding[axis], covered - padding[axis] - data.shape[axis - rank]]
    whole = torch.nn.functional.pad(data, width)
    return op(whole, kernel, stride) * (math.prod(kernel) / divisor)


def _distances(op: Any, args: Sequence[Any], kwargs: Any) -> Any:
    """The exporter raises negative differences to the power as they are."""
    left, right, power = _bound(op, args, kwargs)[:3]
    return torch.linalg.vector_norm(left.unsqueeze(-2) - right.unsqueeze(-3), power, -1)


def _distance(op: Any, args: Sequence[Any], kwargs: Any) -> Any:
    """As `_distances`, row by row."""
    left, right, power, epsilon, keep = _bound(op, args, kwargs)
    return torch.linalg.vector_norm(left - right + epsilon, power, -1, keep)


def _matrix_norm(op: Any, args: Sequence[Any], kwargs: Any) -> Any:
    """The exporter forgets the dtype."""
    data, *rest, dtype = _bound(op, args, kwargs)
    return op(data if dtype is None else torch.ops.aten.to.dtype(data, dtype), *rest)


def _floor_divide(op: Any, args: Sequence[Any], kwargs: Any) -> Any:
    """The exporter truncates."""
    data, divisor = args
    floating = torch.result_type(data, divisor).is_floating_point
    quotient = data / divisor if floating else torch.div(data, divisor, rounding_mode="floor")
    return _written(op, data, torch.floor(quotient) if floating else quotient)


def _clamp(op: Any, args: Sequence[Any], kwargs: Any) -> Any:
    """The exporter rounds the bounds of integers, which PyTorch makes floats for a float bound."""
    data, *bounds = _bound(op, args, kwargs)
    for bound in bounds:
        if bound is not None:
            data = data.to(torch.result_type(data, bound))
    return op(data, *bounds)


def _narrow(op: Any, args: Sequence[Any], kwargs: Any) -> Any:
    """The exporter takes a start that counts from the end for one before the front."""
    data, dim, start, length = _bound(op, args, kwargs)
    start = start + data.shape[dim] if start < 0 else start
    return op(data, dim, start, length)


def _upsample(op: Any, args: Sequence[Any], kwargs: Any) -> Any:
    """ONNX aligns the corners of a result that is not rounded to whole pixels, given a factor."""
    values = _named(op, args, kwargs)
    factors = values.get("scale_factors")
    if values["align_corners"] and factors:
        extents = values["input"].shape[2:]
        values["output_size"] = [int(n * factor) for n, factor in zip(extents, factors)]
        values["scale_factors"] = None
    return op(**values)


def _channel_shuffle(_op: Any, args: Sequence[Any], _kwargs: Any) -> Any:
    """Channels in groups, read across the groups."""
    data, groups = args
    batch, channels, *rest = data.shape
    grouped = data.reshape(batch, groups, channels // groups, *rest)
    return grouped.transpose(1, 2).reshape(batch, channels, *rest)


def _batch_norm(_op: Any, args: Sequence[Any], _kwargs: Any) -> Any:
    """Batch norm of inference; an exported program's also returns what training would keep."""
    data, weight, bias, mean, variance, momentum, epsilon = args
    result = torch.batch_norm(data, weight, bias, mean, variance, False, momentum, epsilon, False)
    return result, torch.empty(0), torch.empty(0)


def _copy_to(_op: Any, args: Sequence[Any], kwargs: Any) -> Any:
    """A conversion of dtype; where and how it is stored does not matter here."""
    dtype = kwargs.get("dtype")
    return args[0].clone() if dtype is None else args[0].to(dtype)


def _filled(_op: Any, args: Sequence[Any], _kwargs: Any) -> Any:
    data, value = args[:2]
    return torch.as_tensor(value).to(data.dtype).expand(data.shape).clone()


def _slice_scatter(_op: Any, args: Sequence[Any], _kwargs: Any) -> Any:
    data, source = args[:2]
    dim, start, end, step = (list(args[2:]) + [0, None, None, 1][len(args) - 2 :])[:4]
    return _replaced(data, source, dim, slice(start, end, step))


def _replaced(data: torch.Tensor, source: torch.Tensor, dim: int, index: Any) -> torch.Tensor:
    result = data.clone()
    result[(slice(None),) * (dim % data.dim()) + (index,)] = source
    return result


def _softplus(op: Any, args: Sequence[Any], kwargs: Any) -> Any:
    """The exporter forgets the threshold above which the function is the identity."""
    data, beta, threshold = _bound(op, args, kwargs)
    smooth = torch.nn.functional.softplus(data * beta) / beta
    return torch.where(data * beta > threshold, data, smooth)


def _log_sigmoid(op: Any, args: Sequence[Any], kwargs: Any) -> Any:
    """The exporter takes the logarithm of a sigmoid that rounds to zero."""
    (data,) = _bound(op, args, kwargs)
    result = -torch.nn.functional.softplus(-data)
    return (result, torch.empty(0)) if op._schema.name.endswith("_forward") else result


def _deviation(op: Any, args: Sequence[Any], kwargs: Any) -> Any:
    """The exporter also rounds the correction."""
    correction = _named(op, args, kwargs).get("correction")
    if correction is not None and correction != int(correction):
        raise UnsupportedOperatorError(f"{op._schema.name} with a correction of {correction}")
    return _over_all(op, args, kwargs)


def _cumsum(op: Any, args: Sequence[Any], kwargs: Any) -> Any:
    """The exporter keeps the dtype of integers, which PyTorch sums as int64."""
    data, dim, dtype = _bound(op, args, kwargs)
    narrow = dtype is None and not (data.is_floating_point() or op._schema.name.endswith("_"))
    return op(data.to(torch.int64) if narrow else data, dim, dtype=dtype)


def _over_all(op: Any, args: Sequence[Any], kwargs: Any) -> Any:
    """The exporter drops all dimensions of a reduction over all of them, wanted or not."""
    values = _named(op, args, kwargs)
    if values.get("dim") or not values.get("keepdim"):
        return op(*args, **kwargs)
    values["dim"] = list(range(values["self"].dim()))
    return op(**values)


def _index_add(op: Any, args: Sequence[Any], kwargs: Any) -> Any:
    """The exporter keeps one of the rows that are added at equal indices."""
    data, dim, index, source, alpha = _bound(op, args, kwargs)
    if data.dim() == 0:
        return _written(op, data, data + torch.sum(source * alpha))
    along = [1] * data.dim()
    along[dim] = -1
    places = index.to(torch.int64).reshape(along).expand(source.shape)
    return _written(op, data, torch.scatter_add(data, dim, places, source * alpha))


def _index_put(op: Any, args: Sequence[Any], kwargs: Any) -> Any:
    """The exporter keeps one of the values that are added at equal indices."""
    data, indices, values, accumulate = _bound(op, args, kwargs)[:4]
    if not accumulate or any(i is not None and i.dtype == torch.bool for i in indices):
        return op(*args, **kwargs)  # a mask has no equal indices
    if any(i is None for i in indices):
        raise UnsupportedOperatorError(
            f"{op._schema.name} with accumulate=True and a dimension that is not indexed before "
            "one that is; move the indexed dimensions to the front"
        )
    shape, count = data.shape, len(indices)
    place = torch.zeros((), dtype=torch.int64)
    for index, extent in zip(indices, shape):
        index = index.to(torch.int64)
        place = place * extent + torch.where(index < 0, index + extent, index)
    rows = torch.Size([shape[:count].numel(), shape[count:].numel()])
    source = values.expand(place.shape + shape[count:]).reshape(-1, rows[1])
    places = place.reshape(-1, 1).expand(source.shape)
    added = torch.scatter_add(data.reshape(rows), 0, places, source.to(data.dtype))
    return _written(op, data, added.reshape(shape))


def _squeeze(op: Any, args: Sequence[Any], kwargs: Any) -> Any:
    """The exporter takes one axis at a time."""
    data, *dims = args
    if not dims or isinstance(dims[0], int):
        return op(*args, **kwargs)
    for dim in sorted((each % data.dim() for each in dims[0]), reverse=True):
        data = torch.squeeze(data, dim)
    return data


def _nothing(_op: Any, _args: Sequence[Any], _kwargs: Any) -> None:
    """Checks of extents are made when the program is exported, and by a library when called."""


def _bound(op: Any, args: Sequence[Any], kwargs: Any) -> list[Any]:
    """The values of all declared arguments, defaults included."""
    declared = op._schema.arguments
    return list(args) + [
        kwargs.get(argument.name, argument.default_value) for argument in declared[len(args) :]
    ]


def _named(op: Any, args: Sequence[Any], kwargs: Any) -> dict[str, Any]:
    """The values of all declared arguments by name."""
    declared = [argument.name for argument in op._schema.arguments]
    return dict(zip(declared, _bound(op, args, kwargs)))


def _written(op: Any, data: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    """The result, in the place of `data` where the operator works in place."""
    return data.copy_(result) if op._schema.name.endswith("_") else result


_REWRITTEN: dict[str, Callable[[Any, Sequence[Any], Any], Any]] = {
    "aten::_native_batch_norm_legit_no_training": _batch_norm,
    **dict.fromkeys(("aten::_assert_scalar", "aten::_assert_tensor_metadata"), _nothing),
    **{f"aten::sym_constrain_range{kind}": _nothing for kind in ("", "_for_size")},
    "aten::_to_copy": _copy_to,
    "aten::sym_numel": lambda _, args, __: args[0].numel(),
    "aten::sym_size": lambda _, args, __: args[0].size(args[1]),
    **{f"aten::adaptive_avg_pool{rank}d": _adaptive(_averages) for rank in (1, 2, 3)},
    **{f"aten::_adaptive_avg_pool{rank}d": _adaptive(_averages) for rank in (2, 3)},
    **{f"aten::adaptive_max_pool{rank}d": _adaptive(_maxima) for rank in (1, 2, 3)},
    **{f"aten::avg_pool{rank}d": _average for rank in (2, 3)},
    **{f"aten::max_pool{rank}d": _maximum for rank in (1, 2, 3)},
    "aten::cdist": _distances,
    "aten::channel_shuffle": _channel_shuffle,
    "aten::copy": _filled,
    # The exporter bounds the product of the norms by epsilon, not each norm.
    "aten::cosine_similarity": lambda op, args, kwargs: op.decompose(*args, **kwargs),
    "aten::fill": _filled,
    **dict.fromkeys(("aten::clamp", "aten::clamp_min", "aten::clamp_max"), _clamp),
    "aten::cumsum": _cumsum,
    **dict.fromkeys(("aten::floor_divide", "aten::floor_divide_"), _floor_divide),
    **dict.fromkeys(("aten::index_add", "aten::index_add_"), _index_add),
    **dict.fromkeys(("aten::index_put", "aten::index_put_", "aten::_index_put_impl_"), _index_put),
    "aten::lift_fresh_copy": _copy_to,
    "aten::linalg_matrix_norm": _matrix_norm,
    "aten::linalg_vector_norm": _over_all,
    "aten::log_sigmoid": _log_sigmoid,
    "aten::log_sigmoid_forward": _log_sigmoid,
    "aten::narrow": _narrow,
    "aten::native_channel_shuffle": _channel_shuffle,
    "aten::norm": _over_all,
    "aten::pairwise_distance": _distance,
    **dict.fromkeys(("aten::all", "aten::any"), _of_any_dtype),
    "aten::cross_entropy_loss": _cross_entropy,
    **{f"aten::{name}": _zeros for name in ("empty", "empty_like", "new_empty")},
    "aten::scatter": _scatter,
    "aten::scatter_add": _scatter,
    **dict.fromkeys(("aten::scatter_reduce", "aten::scatter_reduce_"), _scatter_reduce),
    "aten::select_scatter": lambda _, args, __: _replaced(*args),
    "aten::slice_scatter": _slice_scatter,
    "aten::softplus": _softplus,
    "aten::squeeze": _squeeze,
    **dict.fromkeys(("aten::threshold", "aten::threshold_"), _threshold),
    **{f"aten::{name}": _deviation for name in ("std", "std_mean", "var", "var_mean")},
    **{
        f"aten::upsample_{mode}": _upsample
        for mode in ("linear1d", "bilinear2d", "trilinear3d", "bicubic2d")
    },
    "aten::trunc": _truncated,
    **pytorch_quantized.REWRITTEN,
}
