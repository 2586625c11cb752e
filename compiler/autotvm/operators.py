"""Operators that tasks tune: from a task's arguments to a kernel, and its right result.

A task's arguments are those of the old templates: plain tensors, whatever layout the kernel reads.
The kernel alone is tuned: packed weights and blocked data are its inputs, nothing is fused behind.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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
from schedules.conv_shape import window_places
from schedules.matmul import BatchMatmulWorkload, DenseWorkload, Operand
from schedules.x86.conv.conv2d import oc_block_of
from schedules.x86.conv.register_tile import fewest_vectors
from schedules.x86.machine.cpu import Machine
from schedules.x86.templates.group_conv2d_template import within_groups

from ..lowering.selection.layout_cache import PLAIN
from ..lowering.selection.ops.conv2d import READ_PLAIN_BELOW, input_block, plain_if_unblocked
from .convolutions import convolution, exact

_SEED = 0

Arrays = list[np.ndarray]


class Operator:
    """An operator family of the schedule library; `w` is a workload of it."""

    name: str  # as the strategies know it: "nn.conv2d"

    def workload(self, task: str, args: tuple) -> Any:
        """The workload of a task's arguments."""
        raise NotImplementedError

    def flop(self, w: Any) -> float:
        """Operations of one call, a multiply-add being two."""
        raise NotImplementedError

    def kernel(self, tunable: Tunable, config: ConfigEntity, target: Target) -> list[te.Tensor]:
        """Inputs and output of the kernel's compute, in the layouts that the config asks for."""
        raise NotImplementedError

    def values(self, w: Any, rng: np.random.Generator) -> Arrays:
        """Random operands, plain."""
        raise NotImplementedError

    def stored(self, w: Any, values: Arrays) -> Arrays:
        """The operands as the operator reads them in a network."""
        return values

    def call(self, w: Any, first: relax.Expr, second: relax.Expr) -> relax.Expr:
        """The operator on operands that lie in memory like that."""
        raise NotImplementedError

    def constant_weight(self, w: Any) -> bool:
        """Whether its second operand is known when it is built."""
        return True

    def arrange(
        self, tunable: Tunable, config: ConfigEntity, tensors: list[te.Tensor], values: Arrays
    ) -> Arrays:
        """The operands as the kernel reads them."""
        raise NotImplementedError

    def expected(self, w: Any, values: Arrays) -> np.ndarray:
        """Compute the reference result in the plain layout, in float64 or int64."""
        return exact(values[0]) @ exact(values[1])

    def plain(self, w: Any, result: np.ndarray) -> np.ndarray:
        """The kernel's result, plain."""
        return result


@dataclass(frozen=True)
class Tunable:
    """An implementation of an operator for one workload."""

    operator: Operator
    implementation: strategy.Implementation
    workload: Any


def find(name: str, args: tuple, target: Target) -> Tunable:
    """The implementation that a task tunes.

    Raises InstantiationError: the target has none of that name, or it rejects the arguments.
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
                why = "arguments are missing" if isinstance(error, IndexError) else error
                raise InstantiationError(
                    f"{name} can't take the arguments {args}: {why}"
                ) from error
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
        operator = self.tunable.operator
        tensors = operator.kernel(self.tunable, self.config, self.target)
        out = np.zeros([int(dim) for dim in tensors[-1].shape], str(tensors[-1].dtype))
        arranged = operator.arrange(self.tunable, self.config, tensors, self._values)
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
    _require(all(int(dim) > 0 for dim in shape), f"a tensor of shape {shape} has no elements")
    return tuple(int(dim) for dim in shape), str(dtype)


def _require(holds: bool, message: str) -> None:
    """Raise ValueError for arguments that contradict each other."""
    if not holds:
        raise ValueError(message)


def _second(dtype: str, first: str) -> str:
    """An element type as workloads say it of a second operand: empty where it is the first's."""
    return "" if dtype == first else dtype


def _ints(values: Any, rank: int = 0) -> Any:
    """Convert integers to a tuple; repeat a single integer for each of `rank` axes."""
    return (values,) * rank if rank and isinstance(values, int) else tuple(map(int, values))


def _window(
    size: Sequence[int], kernel: Sequence[int], strides: Any, padding: Any, dilation: Any
) -> tuple[Any, Any, Any]:
    """Strides, padding (all front pads, then all back pads) and dilation of a convolution."""
    rank = len(size)
    strides, padding, dilation = (_ints(each, rank) for each in (strides, padding, dilation))
    padding = padding * 2 if len(padding) == rank else padding
    lengths = len(strides), len(dilation), len(padding)
    _require(
        lengths == (rank, rank, 2 * rank),
        f"{rank} axes have {rank} strides and dilations, and {rank} or {2 * rank} pads",
    )
    _require(min(strides + dilation) > 0, "strides and dilations are positive")
    padded = (sum(each) for each in zip(size, padding[:rank], padding[rank:], strict=True))
    places = map(window_places, padded, kernel, strides, dilation)
    _require(min(places) > 0, "the kernel is larger than the padded data")
    return strides, padding, dilation


def _placeholder(name: str, shape: Sequence[int], dtype: str) -> te.Tensor:
    return te.placeholder(tuple(int(dim) for dim in shape), dtype, name=name)


class _Conv2d(Operator):
    name = "nn.conv2d"

    def workload(self, task: str, args: tuple) -> Conv2dWorkload:
        data, weight, strides, padding, dilation, *rest = args
        (batch, channels, height, width), dtype = _tensor(data)
        (out_channels, per_group, *kernel), weight_dtype = _tensor(weight)
        if task == "depthwise_conv2d_nchw.cuda":  # its weights are (channels, multiplier, KH, KW)
            out_channels, per_group = out_channels * per_group, 1
        _require(channels % per_group == 0, f"{channels} channels are no groups of {per_group}")
        if len(rest) == 3:
            _require(str(rest[0]).startswith("NCHW"), f"the layout {rest[0]} is not NCHW")
        window = _window((height, width), kernel, strides, padding, dilation)
        return Conv2dWorkload(
            batch,
            channels,
            height,
            width,
            out_channels,
            _ints(kernel),
            *window,
            channels // per_group,
            dtype,
            str(rest[-1]) if rest else dtype,
            constant_weight=True,
            weight_dtype=_second(weight_dtype, dtype),
        )

    def flop(self, w: Conv2dWorkload) -> float:
        taps = w.in_channels // w.groups * math.prod(w.kernel)
        return 2.0 * w.batch * w.out_channels * w.out_height * w.out_width * taps

    def _weight_shape(self, w: Conv2dWorkload) -> tuple[int, ...]:
        return (w.out_channels, w.in_channels // w.groups, *w.kernel)

    def _within_groups(self, w: Conv2dWorkload, config: ConfigEntity) -> ConfigEntity:
        """The config as the lowering uses it."""
        if w.groups > 1 and not w.is_depthwise and "tile_oc" in config:
            return within_groups(w, config)
        return config

    def kernel(self, tunable: Tunable, config: ConfigEntity, target: Target) -> list[te.Tensor]:
        impl, w = tunable.implementation, tunable.workload
        config = self._within_groups(w, config)
        present = PLAIN  # the input comes as a convolution of the same channels would leave it
        if w.in_channels >= READ_PLAIN_BELOW:
            present = fewest_vectors(w.in_channels, Machine.from_target(target).lanes(w.dtype))
        block = input_block(w, config, present, oc_block_of(config))
        shape: tuple[int, ...] = (w.batch, w.in_channels, w.height, w.width)
        if block != PLAIN:
            shape = (w.batch, -(-w.in_channels // block), w.height, w.width, block)
        data = _placeholder("data", shape, w.dtype)
        assert impl.pack is not None
        zeros = np.zeros(self._weight_shape(w), w.weight_dtype or w.dtype)
        packed = impl.pack(np, zeros, config, block)
        weight = _placeholder("weight", packed.shape, str(packed.dtype))
        return [data, weight, plain_if_unblocked(impl.compute(w, config, data, weight))]

    def values(self, w: Conv2dWorkload, rng: np.random.Generator) -> Arrays:
        data = random_values(rng, (w.batch, w.in_channels, w.height, w.width), w.dtype)
        return [data, random_values(rng, self._weight_shape(w), w.weight_dtype or w.dtype)]

    def call(self, w: Conv2dWorkload, first: relax.Expr, second: relax.Expr) -> relax.Expr:
        return relax.op.nn.conv2d(
            first, second, w.strides, w.padding, w.dilation, w.groups, out_dtype=w.out_dtype
        )

    def arrange(
        self, tunable: Tunable, config: ConfigEntity, tensors: list[te.Tensor], values: Arrays
    ) -> Arrays:
        data, weight = values
        block = PLAIN
        if len(tensors[0].shape) == 5:
            block = int(tensors[0].shape[4])
            data = _blocked(data, block)
        pack = tunable.implementation.pack
        assert pack is not None
        return [data, pack(np, weight, self._within_groups(tunable.workload, config), block)]

    def expected(self, w: Conv2dWorkload, values: Arrays) -> np.ndarray:
        return convolution(values[0], values[1], w.strides, w.padding, w.dilation)

    def plain(self, w: Conv2dWorkload, result: np.ndarray) -> np.ndarray:
        if result.ndim == 4:
            return result
        n, _, height, width, _ = result.shape
        plain = result.transpose(0, 1, 4, 2, 3).reshape(n, -1, height, width)
        return plain[:, : w.out_channels]


def _blocked(data: np.ndarray, block: int) -> np.ndarray:
    """(N, C, H, W) -> (N, C/b, H, W, b), filled up with zeros."""
    n, channels, height, width = data.shape
    padded = np.pad(data, ((0, 0), (0, -channels % block), (0, 0), (0, 0)))
    return padded.reshape(n, -1, block, height, width).transpose(0, 1, 3, 4, 2)


class _Conv3d(Operator):
    name = "nn.conv3d"

    def workload(self, task: str, args: tuple) -> Conv3dWorkload:
        data, weight, strides, padding, dilation, groups, out_dtype = args
        shape, dtype = _tensor(data)
        kernel, _ = _tensor(weight)
        channels_last = task == "conv3d_ndhwc.x86"
        if channels_last:
            batch, size, channels = shape[0], shape[1:4], shape[4]
            taps, out_channels = kernel[:3], kernel[4]
        else:
            batch, channels, size = shape[0], shape[1], shape[2:]
            taps, out_channels = kernel[2:], kernel[0]
        window = _window(size, taps, strides, padding, dilation)
        return Conv3dWorkload(
            batch,
            channels,
            _ints(size),
            out_channels,
            _ints(taps),
            *window,
            int(groups),
            dtype,
            str(out_dtype),
            channels_last,
        )

    def flop(self, w: Conv3dWorkload) -> float:
        taps = w.in_channels // w.groups * math.prod(w.kernel)
        return 2.0 * w.batch * w.out_channels * math.prod(w.out_size) * taps

    def _shapes(self, w: Conv3dWorkload) -> tuple[tuple[int, ...], tuple[int, ...]]:
        data, weight, *_ = w.autotvm_args()
        return data[1], weight[1]

    def kernel(self, tunable: Tunable, config: ConfigEntity, target: Target) -> list[te.Tensor]:
        w = tunable.workload
        data_shape, weight_shape = self._shapes(w)
        data = _placeholder("data", data_shape, w.dtype)
        pack: Any = tunable.implementation.pack
        packed = pack(w, np, np.zeros(weight_shape, w.dtype), config)
        weight = _placeholder("weight", packed.shape, w.dtype)
        return [data, weight, tunable.implementation.compute(w, config, data, weight)]

    def values(self, w: Conv3dWorkload, rng: np.random.Generator) -> Arrays:
        return [random_values(rng, shape, w.dtype) for shape in self._shapes(w)]

    def call(self, w: Conv3dWorkload, first: relax.Expr, second: relax.Expr) -> relax.Expr:
        layouts = ("NDHWC", "DHWIO") if w.channels_last else ("NCDHW", "OIDHW")
        return relax.op.nn.conv3d(
            first, second, w.strides, w.padding, w.dilation, w.groups, *layouts
        )

    def arrange(
        self, tunable: Tunable, config: ConfigEntity, tensors: list[te.Tensor], values: Arrays
    ) -> Arrays:
        pack: Any = tunable.implementation.pack
        return [values[0], pack(tunable.workload, np, values[1], config)]

    def expected(self, w: Conv3dWorkload, values: Arrays) -> np.ndarray:
        data, weight = values
        if w.channels_last:
            data, weight = data.transpose(0, 4, 1, 2, 3), weight.transpose(4, 3, 0, 1, 2)
        result = convolution(data, weight, w.strides, w.padding, w.dilation)
        return result.transpose(0, 2, 3, 4, 1) if w.channels_last else result


class _Dense(Operator):
    name = "nn.dense"

    def workload(self, task: str, args: tuple) -> DenseWorkload:
        """Arguments of AutoTVM's templates, or those of `DenseWorkload.stored_args`."""
        (m, k), dtype = _tensor(args[0])
        shape, weight_dtype = _tensor(args[1])
        if len(shape) == 4:  # tiles (N/16, K/4, 16, 4), as TVM's layout pass packed them
            shape = (shape[0] * shape[2], shape[1] * shape[3])
        bias_or_axes, out_dtype = args[2], str(args[3])
        second = _second(weight_dtype, dtype)
        if bias_or_axes is None or bias_or_axes[:1] == ("TENSOR",):
            _require(
                len(shape) != 2 or shape[1] == k,
                f"the weight has rows of {shape[1]}, the data of {k}",
            )
            return DenseWorkload((m,), shape[0], k, dtype, out_dtype, None, second)
        operand = Operand(shape, _ints(bias_or_axes))
        return DenseWorkload((m,), operand.shape[-1], k, dtype, out_dtype, operand, second)

    def flop(self, w: DenseWorkload) -> float:
        return 2.0 * w.m * w.n * w.k

    def kernel(self, tunable: Tunable, config: ConfigEntity, target: Target) -> list[te.Tensor]:
        impl, w = tunable.implementation, tunable.workload
        x = _placeholder("x", (*w.lead, w.k), w.dtype)
        shape = (w.k, w.n) if w.weight is None else w.weight.stored
        if impl.pack is not None:
            shape = impl.pack(np, np.zeros((w.k, w.n), w.dtype), config).shape
        weight = _placeholder("weight", shape, w.dtype)
        return [x, weight, impl.compute(w, config, x, weight)]

    def values(self, w: DenseWorkload, rng: np.random.Generator) -> Arrays:
        x = random_values(rng, (*w.lead, w.k), w.dtype)
        return [x, random_values(rng, (w.k, w.n), w.rhs_dtype or w.dtype)]

    def _weight(self, w: DenseWorkload) -> Operand:
        """How the weight lies in memory: a constant one as (n, k)."""
        return w.weight or Operand((w.n, w.k), (1, 0))

    def stored(self, w: DenseWorkload, values: Arrays) -> Arrays:
        return [values[0], _stored(values[1], self._weight(w))]

    def call(self, w: DenseWorkload, first: relax.Expr, second: relax.Expr) -> relax.Expr:
        return relax.op.matmul(first, _read(second, self._weight(w)), w.out_dtype)

    def constant_weight(self, w: DenseWorkload) -> bool:
        return w.weight is None

    def arrange(
        self, tunable: Tunable, config: ConfigEntity, tensors: list[te.Tensor], values: Arrays
    ) -> Arrays:
        (x, weight), pack, operand = values, tunable.implementation.pack, tunable.workload.weight
        if pack is not None:
            return [x, pack(np, weight, config)]
        return [x, weight if operand is None else _stored(weight, operand)]


def _stored(value: np.ndarray, operand: Operand) -> np.ndarray:
    """A stack of matrices as its operand lies in memory."""
    return value.transpose(np.argsort(operand.axes)).reshape(operand.stored)


def _read(tensor: relax.Expr, operand: Operand) -> relax.Expr:
    """The stack of matrices that lies in memory as the operand says."""
    plain = list(operand.axes) == sorted(operand.axes)
    return tensor if plain else relax.op.permute_dims(tensor, list(operand.axes))


class _BatchMatmul(Operator):
    name = "nn.batch_matmul"

    def workload(self, task: str, args: tuple) -> BatchMatmulWorkload:
        """Arguments of AutoTVM's template, or those of `BatchMatmulWorkload.stored_args`."""
        (lhs, dtype), (rhs, rhs_dtype) = _tensor(args[0]), _tensor(args[1])
        if isinstance(args[3], str):
            axes_a, axes_b = ((0, 2, 1) if t else (0, 1, 2) for t in args[4:6] or (False, True))
            out_dtype = args[3]
        else:
            axes_a, axes_b, out_dtype = _ints(args[2]), _ints(args[3]), args[4]
        first, second = Operand(lhs, axes_a), Operand(rhs, axes_b)
        _require(
            first.shape[-1] == second.shape[-2],
            f"the operands {first.shape} and {second.shape} have no product",
        )
        return BatchMatmulWorkload(first, second, dtype, str(out_dtype), _second(rhs_dtype, dtype))

    def flop(self, w: BatchMatmulWorkload) -> float:
        return 2.0 * math.prod(w.batch) * w.m * w.n * w.k

    def kernel(self, tunable: Tunable, config: ConfigEntity, target: Target) -> list[te.Tensor]:
        w = tunable.workload
        lhs = _placeholder("lhs", w.lhs.stored, w.dtype)
        rhs = _placeholder("rhs", w.rhs.stored, w.dtype)
        return [lhs, rhs, tunable.implementation.compute(w, config, lhs, rhs)]

    def values(self, w: BatchMatmulWorkload, rng: np.random.Generator) -> Arrays:
        types = (w.dtype, w.rhs_dtype or w.dtype)
        return [random_values(rng, each.shape, dtype) for each, dtype in zip((w.lhs, w.rhs), types)]

    def stored(self, w: BatchMatmulWorkload, values: Arrays) -> Arrays:
        return [_stored(value, operand) for value, operand in zip(values, (w.lhs, w.rhs))]

    def call(self, w: BatchMatmulWorkload, first: relax.Expr, second: relax.Expr) -> relax.Expr:
        return relax.op.matmul(_read(first, w.lhs), _read(second, w.rhs), w.out_dtype)

    def constant_weight(self, w: BatchMatmulWorkload) -> bool:
        return False

    def arrange(
        self, tunable: Tunable, config: ConfigEntity, tensors: list[te.Tensor], values: Arrays
    ) -> Arrays:
        return self.stored(tunable.workload, values)


OPERATORS: dict[str, Operator] = {
    operator.name: operator for operator in (_Conv2d(), _Conv3d(), _Dense(), _BatchMatmul())
}
