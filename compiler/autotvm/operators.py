"""Operators that tasks tune: from a task's arguments to a kernel, and its right result.

A task's arguments are those of the old templates: plain tensors, whatever layout the kernel reads.
The kernel alone is tuned: packed weights and blocked data are its inputs, nothing is fused behind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, te
from tvm.target import Target

import schedules.cuda.templates
import schedules.x86
import schedules.x86.templates.spaces  # noqa: F401  (registers the knobs)
from schedules import strategy
from schedules.config import ConfigEntity, InstantiationError
from schedules.conv2d import Conv2dWorkload
from schedules.conv3d import Conv3dWorkload
from schedules.matmul import BatchMatmulWorkload, DenseWorkload, Operand
from schedules.x86.conv.conv2d import oc_block_of
from schedules.x86.conv.register_tile import fewest_vectors
from schedules.x86.machine.cpu import Machine
from schedules.x86.templates.group_conv2d_template import within_groups

from ..lowering.selection.layout_cache import PLAIN
from ..lowering.selection.ops.conv2d import READ_PLAIN_BELOW, input_block, plain_if_unblocked
from .convolutions import convolution, exact

_SEED = 0


@dataclass(frozen=True)
class Operator:
    """An operator family of the schedule library."""

    name: str  # as the strategies know it: "nn.conv2d"
    workload: Callable[[str, tuple], Any]
    flop: Callable[[Any], float]  # operations of one call, a multiply-add being two
    # Inputs and output of the kernel's compute, in the layouts that the config asks for
    kernel: Callable[..., list[te.Tensor]]
    values: Callable[[Any, np.random.Generator], list[np.ndarray]]  # random operands, plain
    # The same as the operator reads them in a network
    stored: Callable[[Any, Sequence[np.ndarray]], list[np.ndarray]]
    call: Callable[..., relax.Expr]  # the operator on operands that lie in memory like that
    constant_weight: Callable[[Any], bool]  # whether its second operand is known when it is built
    arrange: Callable[..., list[np.ndarray]]  # the operands as the kernel reads them
    # The right result, plain, in float64, or int64 for integers
    expected: Callable[[Any, Sequence[np.ndarray]], np.ndarray]
    plain: Callable[[Any, np.ndarray], np.ndarray]  # the kernel's result, plain


@dataclass(frozen=True)
class Tunable:
    """An implementation of an operator for one workload."""

    operator: Operator
    implementation: strategy.Implementation
    workload: Any


def find(name: str, args: tuple, target: Target) -> Tunable:
    """The implementation that a task tunes.

    `name`: of the implementation, which is that of the task.
    `args`: the task's arguments.
    Raises InstantiationError: the library has no such implementation on the target, or it does not
    take the arguments.
    """
    known = False
    for operator in OPERATORS.values():
        for implementation in strategy.registered(operator.name, target):
            if implementation.name != name:
                continue
            known = True
            try:
                workload = operator.workload(name, args)
            except (TypeError, ValueError, IndexError, KeyError) as error:
                raise InstantiationError(f"{name} can't take the arguments {args}") from error
            if implementation.supports(workload, target):
                return Tunable(operator, implementation, workload)
    why = "does not take these arguments" if known else "is not an implementation of the library"
    raise InstantiationError(f"{name} {why} for {target.kind.name}: {args}")


class OperatorReference:
    """The right result of a tunable's kernel on seeded inputs; a `measure.Reference`."""

    def __init__(self, tunable: Tunable, config: ConfigEntity, target: Target) -> None:
        self.tunable = tunable
        self.config = config
        self.target = target
        rng = np.random.default_rng(_SEED)
        self._values = tunable.operator.values(tunable.workload, rng)

    def arguments(self) -> list[np.ndarray]:
        """Inputs as the kernel reads them, and room for its result."""
        operator, w = self.tunable.operator, self.tunable.workload
        tensors = operator.kernel(self.tunable.implementation, w, self.config, self.target)
        out = np.zeros([int(dim) for dim in tensors[-1].shape], str(tensors[-1].dtype))
        arranged = operator.arrange(
            self.tunable.implementation, w, self.config, tensors, self._values
        )
        return [*(np.ascontiguousarray(value) for value in arranged), out]

    def relative_error(self, arguments: Sequence[np.ndarray]) -> float:
        """Largest error relative to the largest element."""
        operator, w = self.tunable.operator, self.tunable.workload
        expected = operator.expected(w, self._values)
        found = operator.plain(w, arguments[-1])
        scale = float(np.abs(expected).max()) or 1.0
        return float(np.abs(found - expected).max()) / scale


def random_values(rng: np.random.Generator, shape: Sequence[int], dtype: str) -> np.ndarray:
    """Integers over their dtype's whole range, floats from -1 to 1."""
    if "int" in dtype:
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, tuple(shape), dtype, endpoint=True)
    return rng.uniform(-1, 1, tuple(shape)).astype(dtype)


def _tensor(value: Any) -> tuple[tuple[int, ...], str]:
    _, shape, dtype = value
    return tuple(int(dim) for dim in shape), str(dtype)


def _second(dtype: str, first: str) -> str:
    """An element type as workloads say it of a second operand: empty where it is the first's."""
    return "" if dtype == first else dtype


def _as_given(_: Any, values: Sequence[np.ndarray]) -> list[np.ndarray]:
    return list(values)


def _ints(values: Any) -> Any:
    return tuple(int(value) for value in values)


def _placeholder(name: str, shape: Sequence[int], dtype: str) -> te.Tensor:
    return te.placeholder(tuple(int(dim) for dim in shape), dtype, name=name)


# --- conv2d ------------------------------------------------------------------------------


def _conv2d_workload(name: str, args: tuple) -> Conv2dWorkload:
    data, weight, strides, padding, dilation, *rest = args
    (batch, channels, height, width), dtype = _tensor(data)
    (out_channels, per_group, *kernel), weight_dtype = _tensor(weight)
    if name == "depthwise_conv2d_nchw.cuda":  # its weights are (channels, multiplier, KH, KW)
        out_channels, per_group = out_channels * per_group, 1
    padding = _ints(padding)
    return Conv2dWorkload(
        batch,
        channels,
        height,
        width,
        out_channels,
        _ints(kernel),
        _ints(strides),
        padding * (4 // len(padding)),
        _ints(dilation),
        channels // per_group,
        dtype,
        str(rest[-1]) if rest else dtype,
        constant_weight=True,
        weight_dtype=_second(weight_dtype, dtype),
    )


def _conv2d_flop(w: Conv2dWorkload) -> float:
    taps = w.in_channels // w.groups * math.prod(w.kernel)
    return 2.0 * w.batch * w.out_channels * w.out_height * w.out_width * taps


def _conv2d_blocks(w: Conv2dWorkload, config: ConfigEntity, target: Target) -> tuple[Any, int]:
    """The config as the lowering uses it, and the channel block of the input.

    The input comes as a convolution of the same channels would leave it.
    """
    if w.groups > 1 and not w.is_depthwise and "tile_oc" in config:
        config = within_groups(w, config)
    present = PLAIN
    if w.in_channels >= READ_PLAIN_BELOW:
        present = fewest_vectors(w.in_channels, Machine.from_target(target).lanes(w.dtype))
    return config, input_block(w, config, present, oc_block_of(config))


def _conv2d_kernel(
    impl: strategy.Implementation, w: Conv2dWorkload, config: ConfigEntity, target: Target
) -> list[te.Tensor]:
    config, block = _conv2d_blocks(w, config, target)
    if block == PLAIN:
        shape: tuple[int, ...] = (w.batch, w.in_channels, w.height, w.width)
    else:
        shape = (w.batch, -(-w.in_channels // block), w.height, w.width, block)
    data = _placeholder("data", shape, w.dtype)
    assert impl.pack is not None
    zeros = np.zeros(_conv2d_weight_shape(w), w.weight_dtype or w.dtype)
    packed = impl.pack(np, zeros, config, block)
    weight = _placeholder("weight", packed.shape, str(packed.dtype))
    return [data, weight, plain_if_unblocked(impl.compute(w, config, data, weight))]


def _conv2d_weight_shape(w: Conv2dWorkload) -> tuple[int, ...]:
    return (w.out_channels, w.in_channels // w.groups, *w.kernel)


def _conv2d_values(w: Conv2dWorkload, rng: np.random.Generator) -> list[np.ndarray]:
    data = random_values(rng, (w.batch, w.in_channels, w.height, w.width), w.dtype)
    return [data, random_values(rng, _conv2d_weight_shape(w), w.weight_dtype or w.dtype)]


def _conv2d_call(w: Conv2dWorkload, data: relax.Expr, weight: relax.Expr) -> relax.Expr:
    return relax.op.nn.conv2d(
        data, weight, w.strides, w.padding, w.dilation, w.groups, out_dtype=w.out_dtype
    )


def _conv2d_arrange(
    impl: strategy.Implementation,
    w: Conv2dWorkload,
    config: ConfigEntity,
    tensors: Sequence[te.Tensor],
    values: Sequence[np.ndarray],
) -> list[np.ndarray]:
    data, weight = values
    block = PLAIN
    if len(tensors[0].shape) == 5:
        block = int(tensors[0].shape[4])
        data = _blocked(data, block)
    if w.groups > 1 and not w.is_depthwise and "tile_oc" in config:
        config = within_groups(w, config)
    assert impl.pack is not None
    return [data, impl.pack(np, weight, config, block)]


def _blocked(data: np.ndarray, block: int) -> np.ndarray:
    """(N, C, H, W) -> (N, C/b, H, W, b), filled up with zeros."""
    n, channels, height, width = data.shape
    padded = np.pad(data, ((0, 0), (0, -channels % block), (0, 0), (0, 0)))
    return padded.reshape(n, -1, block, height, width).transpose(0, 1, 3, 4, 2)


def _conv2d_expected(w: Conv2dWorkload, values: Sequence[np.ndarray]) -> np.ndarray:
    return convolution(values[0], values[1], w.strides, w.padding, w.dilation)


def _conv2d_plain(w: Conv2dWorkload, result: np.ndarray) -> np.ndarray:
    if result.ndim == 4:
        return result
    n, _, height, width, _ = result.shape
    plain = result.transpose(0, 1, 4, 2, 3).reshape(n, -1, height, width)
    return plain[:, : w.out_channels]


# --- conv3d ------------------------------------------------------------------------------


def _conv3d_workload(name: str, args: tuple) -> Conv3dWorkload:
    data, weight, strides, padding, dilation, groups, out_dtype = args
    shape, dtype = _tensor(data)
    kernel, _ = _tensor(weight)
    channels_last = name == "conv3d_ndhwc.x86"
    if channels_last:
        batch, size, channels = shape[0], shape[1:4], shape[4]
        taps, out_channels = kernel[:3], kernel[4]
    else:
        batch, channels, size = shape[0], shape[1], shape[2:]
        taps, out_channels = kernel[2:], kernel[0]
    return Conv3dWorkload(
        batch,
        channels,
        _ints(size),
        out_channels,
        _ints(taps),
        _ints(strides),
        _ints(padding),
        _ints(dilation),
        int(groups),
        dtype,
        str(out_dtype),
        channels_last,
    )


def _conv3d_flop(w: Conv3dWorkload) -> float:
    taps = w.in_channels // w.groups * math.prod(w.kernel)
    return 2.0 * w.batch * w.out_channels * math.prod(w.out_size) * taps


def _conv3d_shapes(w: Conv3dWorkload) -> tuple[tuple[int, ...], tuple[int, ...]]:
    data, weight, *_ = w.autotvm_args()
    return data[1], weight[1]


def _conv3d_kernel(
    impl: strategy.Implementation, w: Conv3dWorkload, config: ConfigEntity, _: Target
) -> list[te.Tensor]:
    data_shape, weight_shape = _conv3d_shapes(w)
    data = _placeholder("data", data_shape, w.dtype)
    pack: Any = impl.pack
    packed = pack(w, np, np.zeros(weight_shape, w.dtype), config)
    weight = _placeholder("weight", packed.shape, w.dtype)
    return [data, weight, impl.compute(w, config, data, weight)]


def _conv3d_values(w: Conv3dWorkload, rng: np.random.Generator) -> list[np.ndarray]:
    return [random_values(rng, shape, w.dtype) for shape in _conv3d_shapes(w)]


def _conv3d_call(w: Conv3dWorkload, data: relax.Expr, weight: relax.Expr) -> relax.Expr:
    layouts = ("NDHWC", "DHWIO") if w.channels_last else ("NCDHW", "OIDHW")
    return relax.op.nn.conv3d(data, weight, w.strides, w.padding, w.dilation, w.groups, *layouts)


def _conv3d_arrange(
    impl: strategy.Implementation,
    w: Conv3dWorkload,
    config: ConfigEntity,
    _: Any,
    values: Sequence[np.ndarray],
) -> list[np.ndarray]:
    pack: Any = impl.pack
    return [values[0], pack(w, np, values[1], config)]


def _conv3d_expected(w: Conv3dWorkload, values: Sequence[np.ndarray]) -> np.ndarray:
    data, weight = values
    if w.channels_last:
        data, weight = data.transpose(0, 4, 1, 2, 3), weight.transpose(4, 3, 0, 1, 2)
    result = convolution(data, weight, w.strides, w.padding, w.dilation)
    return result.transpose(0, 2, 3, 4, 1) if w.channels_last else result


# --- matrix products ---------------------------------------------------------------------


def _dense_workload(_: str, args: tuple) -> DenseWorkload:
    """Arguments of AutoTVM's templates, or those of `DenseWorkload.stored_args`."""
    (m, k), dtype = _tensor(args[0])
    shape, weight_dtype = _tensor(args[1])
    if len(shape) == 4:  # tiles (N/16, K/4, 16, 4), as TVM's layout pass packed them
        shape = (shape[0] * shape[2], shape[1] * shape[3])
    bias_or_axes, out_dtype = args[2], str(args[3])
    second = _second(weight_dtype, dtype)
    if bias_or_axes is None or bias_or_axes[:1] == ("TENSOR",):
        return DenseWorkload((m,), shape[0], k, dtype, out_dtype, None, second)
    operand = Operand(shape, _ints(bias_or_axes))
    return DenseWorkload((m,), operand.shape[-1], k, dtype, out_dtype, operand, second)


def _dense_kernel(
    impl: strategy.Implementation, w: DenseWorkload, config: ConfigEntity, _: Target
) -> list[te.Tensor]:
    x = _placeholder("x", (*w.lead, w.k), w.dtype)
    shape = (w.k, w.n) if w.weight is None else w.weight.stored
    if impl.pack is not None:
        shape = impl.pack(np, np.zeros((w.k, w.n), w.dtype), config).shape
    weight = _placeholder("weight", shape, w.dtype)
    return [x, weight, impl.compute(w, config, x, weight)]


def _dense_values(w: DenseWorkload, rng: np.random.Generator) -> list[np.ndarray]:
    x = random_values(rng, (*w.lead, w.k), w.dtype)
    return [x, random_values(rng, (w.k, w.n), w.rhs_dtype or w.dtype)]


def _dense_weight(w: DenseWorkload) -> Operand:
    """How the weight lies in memory: a constant one as (n, k)."""
    return w.weight or Operand((w.n, w.k), (1, 0))


def _dense_stored(w: DenseWorkload, values: Sequence[np.ndarray]) -> list[np.ndarray]:
    return [values[0], _stored(values[1], _dense_weight(w))]


def _dense_call(w: DenseWorkload, x: relax.Expr, weight: relax.Expr) -> relax.Expr:
    return relax.op.matmul(x, _read(weight, _dense_weight(w)), w.out_dtype)


def _dense_arrange(
    impl: strategy.Implementation,
    w: DenseWorkload,
    config: ConfigEntity,
    _: Any,
    values: Sequence[np.ndarray],
) -> list[np.ndarray]:
    x, weight = values
    if impl.pack is not None:
        return [x, impl.pack(np, weight, config)]
    return [x, weight if w.weight is None else _stored(weight, w.weight)]


def _stored(value: np.ndarray, operand: Operand) -> np.ndarray:
    """A stack of matrices as its operand lies in memory."""
    return value.transpose(np.argsort(operand.axes)).reshape(operand.stored)


def _read(tensor: relax.Expr, operand: Operand) -> relax.Expr:
    """The stack of matrices that lies in memory as the operand says."""
    plain = list(operand.axes) == sorted(operand.axes)
    return tensor if plain else relax.op.permute_dims(tensor, list(operand.axes))


def _product_flop(w: Any) -> float:
    batch = math.prod(w.batch) if isinstance(w, BatchMatmulWorkload) else 1
    return 2.0 * batch * w.m * w.n * w.k


def _batch_matmul_workload(_: str, args: tuple) -> BatchMatmulWorkload:
    """Arguments of AutoTVM's template, or those of `BatchMatmulWorkload.stored_args`."""
    (lhs, dtype), (rhs, rhs_dtype) = _tensor(args[0]), _tensor(args[1])
    if isinstance(args[3], str):
        axes_a, axes_b = ((0, 2, 1) if t else (0, 1, 2) for t in args[4:6] or (False, True))
        out_dtype = args[3]
    else:
        axes_a, axes_b, out_dtype = _ints(args[2]), _ints(args[3]), args[4]
    first, second = Operand(lhs, axes_a), Operand(rhs, axes_b)
    return BatchMatmulWorkload(first, second, dtype, str(out_dtype), _second(rhs_dtype, dtype))


def _batch_matmul_kernel(
    impl: strategy.Implementation, w: BatchMatmulWorkload, config: ConfigEntity, _: Target
) -> list[te.Tensor]:
    lhs = _placeholder("lhs", w.lhs.stored, w.dtype)
    rhs = _placeholder("rhs", w.rhs.stored, w.dtype)
    return [lhs, rhs, impl.compute(w, config, lhs, rhs)]


def _batch_matmul_values(w: BatchMatmulWorkload, rng: np.random.Generator) -> list[np.ndarray]:
    types = (w.dtype, w.rhs_dtype or w.dtype)
    return [random_values(rng, each.shape, dtype) for each, dtype in zip((w.lhs, w.rhs), types)]


def _batch_matmul_stored(w: BatchMatmulWorkload, values: Sequence[np.ndarray]) -> list[np.ndarray]:
    return [_stored(value, operand) for value, operand in zip(values, (w.lhs, w.rhs))]


def _batch_matmul_call(w: BatchMatmulWorkload, lhs: relax.Expr, rhs: relax.Expr) -> relax.Expr:
    return relax.op.matmul(_read(lhs, w.lhs), _read(rhs, w.rhs), w.out_dtype)


def _batch_matmul_arrange(
    impl: strategy.Implementation,
    w: BatchMatmulWorkload,
    config: ConfigEntity,
    _: Any,
    values: Sequence[np.ndarray],
) -> list[np.ndarray]:
    return _batch_matmul_stored(w, values)


def _matmul(_: Any, values: Sequence[np.ndarray]) -> np.ndarray:
    return exact(values[0]) @ exact(values[1])


def _unchanged(_: Any, result: np.ndarray) -> np.ndarray:
    return result


OPERATORS = {
    operator.name: operator
    for operator in (
        Operator(
            "nn.conv2d",
            _conv2d_workload,
            _conv2d_flop,
            _conv2d_kernel,
            _conv2d_values,
            _as_given,
            _conv2d_call,
            lambda w: True,
            _conv2d_arrange,
            _conv2d_expected,
            _conv2d_plain,
        ),
        Operator(
            "nn.conv3d",
            _conv3d_workload,
            _conv3d_flop,
            _conv3d_kernel,
            _conv3d_values,
            _as_given,
            _conv3d_call,
            lambda w: True,
            _conv3d_arrange,
            _conv3d_expected,
            _unchanged,
        ),
        Operator(
            "nn.dense",
            _dense_workload,
            _product_flop,
            _dense_kernel,
            _dense_values,
            _dense_stored,
            _dense_call,
            lambda w: w.weight is None,
            _dense_arrange,
            _matmul,
            _unchanged,
        ),
        Operator(
            "nn.batch_matmul",
            _batch_matmul_workload,
            _product_flop,
            _batch_matmul_kernel,
            _batch_matmul_values,
            _batch_matmul_stored,
            _batch_matmul_call,
            lambda w: False,
            _batch_matmul_arrange,
            _matmul,
            _unchanged,
        ),
    )
}
