"""One function of each family of CUDA kernels, large enough that every loop goes round.

What the interpreter proves, what mutations are made of, and what `make gpu-test` runs on a GPU is
this one table.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import te, tirx, topi
from tvm.target import Target

from schedules import rules
from schedules.attention import AttentionWorkload, Heads, Mask
from schedules.cuda.attention import attention
from schedules.cuda.gemm.contraction import take_apart
from schedules.cuda.gemm.gemm_tiles import WGMMA_TILES, Plan, Tile
from schedules.cuda.gemm.implicit_gemm import kernel
from schedules.matmul import Operand
from tests.schedules.cuda.checking import reference, tensor

nn = topi.nn


@dataclass(frozen=True)
class Family:
    """A kind of kernel.

    Attributes
    ----------
    name : str
    tensors : callable
        () -> placeholders, and the result behind them.
    tolerance : float
        Of the result, relative and absolute.
    expected : callable, optional
        Inputs -> the result, where the function is written for a GPU.
    prepare : callable, optional
        Changes random inputs into what the kernel was promised.
    arch : str, optional
        The only architecture whose kernel it is.
    """

    name: str
    tensors: Callable[[], list[te.Tensor]]
    tolerance: float = 1e-5
    expected: Callable[[list[np.ndarray]], np.ndarray] | None = None
    prepare: Callable[[list[np.ndarray]], object] | None = None
    arch: str | None = None

    def func(self) -> tirx.PrimFunc:
        """The function without a schedule."""
        return te.create_prim_func(self.tensors())

    def scheduled(self, arch: str = "sm_90") -> tuple[str, tirx.PrimFunc, Target]:
        """The rule that takes it for an architecture, what it makes of it, and the target."""
        target = Target({"kind": "cuda", "arch": arch}, host="llvm")
        scheduled = rules.schedule(self.func(), target)
        assert scheduled is not None, f"no rule takes {self.name}"
        return scheduled.rule, scheduled.func, target

    def inputs(self) -> list[np.ndarray]:
        """Values for all parameters but the last."""
        rng = np.random.default_rng(0)
        found = [_values(rng, param) for param in self.func().params[:-1]]
        if self.prepare is not None:
            self.prepare(found)
        return found

    def check(self, found: np.ndarray, inputs: list[np.ndarray]) -> None:
        """Compare a result with the function's without a schedule, on the CPU."""
        expected = self.expected(inputs) if self.expected else reference(self.func(), inputs)
        np.testing.assert_allclose(
            found.astype("float64"), expected, rtol=self.tolerance, atol=self.tolerance
        )


@dataclass(frozen=True)
class OfTile(Family):
    """A product or convolution whose kernel has this tile and divides k into `parts`."""

    arch: str | None = "sm_90a"
    tile: Tile = WGMMA_TILES[0]
    parts: int = 1

    def scheduled(self, arch: str = "sm_90a") -> tuple[str, tirx.PrimFunc, Target]:
        assert arch == self.arch
        target = Target({"kind": "cuda", "arch": arch}, host="llvm")
        return "cuda.tensor_cores", planned(self.func(), target, self.tile, self.parts), target


def planned(
    func: tirx.PrimFunc, target: Target, tile: Tile, parts: int = 1, stages: int = 4
) -> tirx.PrimFunc:
    """The kernel of one tile, whatever would be cheapest."""
    taken = take_apart(func)
    assert taken is not None
    steps = -(-taken.extent("k") * tvm.DataType(taken.a.dtype).itemsize // tile.k_bytes)
    tiles = [-(-taken.extent(letter) // size) for letter, size in (("i", tile.i), ("j", tile.j))]
    plan = Plan(tile, stages, parts, -(-steps // parts), *tiles, taken.extent("s"))
    return kernel(taken, plan, target)


def _wgmma(name: str, tensors: Callable, tolerance: float, *tile: int, parts: int = 1) -> Family:
    (found,) = (each for each in WGMMA_TILES if (each.i, each.j, each.k_bytes) == tile)
    return OfTile(f"wgmma, {name}", tensors, tolerance, tile=found, parts=parts)


def _values(rng: np.random.Generator, param: tvm.ir.Var) -> np.ndarray:
    shape, dtype = tuple(int(extent) for extent in param.shape), str(param.dtype)
    if "float" in dtype:
        return rng.uniform(-1, 1, shape).astype(dtype)
    return rng.integers(-128, 128, shape).astype(dtype)


def _one(compute: Callable[[te.Tensor], te.Tensor], *shape: int, dtype: str = "float32"):
    def tensors() -> list[te.Tensor]:
        x = tensor(*shape, dtype=dtype)
        return [x, compute(x)]

    return tensors


def _two(compute: Callable[..., te.Tensor], first: tuple, second: tuple, dtype: str = "float32"):
    def tensors() -> list[te.Tensor]:
        x, w = tensor(*first, dtype=dtype), tensor(*second, dtype=dtype, name="w")
        return [x, w, compute(x, w)]

    return tensors


def _product(result: str) -> Callable[..., te.Tensor]:
    def compute(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, a.shape[1]), name="k")
        shape = (a.shape[0], b.shape[1])
        return te.compute(
            shape, lambda i, j: te.sum(a[i, k].astype(result) * b[k, j].astype(result), axis=k)
        )

    return compute


def _columns(result: str) -> Callable[..., te.Tensor]:
    """The transposed first matrix times the second one."""

    def compute(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, a.shape[0]), name="k")
        shape = (a.shape[1], b.shape[1])
        return te.compute(
            shape, lambda i, j: te.sum(a[k, i].astype(result) * b[k, j].astype(result), axis=k)
        )

    return compute


def _layer_norm() -> list[te.Tensor]:
    x, scale, shift = tensor(6, 512), tensor(512, name="scale"), tensor(512, name="shift")
    return [x, scale, shift, nn.layer_norm(x, scale, shift, [1], 1e-5)]


def _norm_of_product() -> list[te.Tensor]:
    """norm(x w + bias + residual), whose k is divided among blocks."""
    x, w, bias, residual = (
        tensor(*shape, name=name)
        for name, shape in (("x", (9, 768)), ("w", (520, 768)), ("b", (520,)), ("r", (9, 520)))
    )
    scale, shift = tensor(520, name="scale"), tensor(520, name="shift")
    y = topi.add(topi.add(nn.dense(x, w), bias), residual)
    return [x, w, bias, residual, scale, shift, nn.layer_norm(y, scale, shift, [1], 1e-5)]


def _softmax_of_product(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    return nn.softmax(topi.multiply(_product("float32")(a, b), 0.1))


def attention_workload(dtype: str = "float32", **others: Any) -> AttentionWorkload:
    """One head of 20 queries of 32 elements and 72 keys, and a value of 32 for each of these."""
    q, k, v = (Heads(Operand((1, rows, 32), axes)) for rows, axes in _HEADS)
    return AttentionWorkload(q, k, v, scale=0.3, dtype=dtype, **others)


_HEADS = [(20, (0, 1, 2)), (72, (0, 2, 1)), (72, (0, 1, 2))]


def attended(w: AttentionWorkload, inputs: Sequence[np.ndarray]) -> np.ndarray:
    """Attention in float64, of tensors as the workload says."""
    q, k, v, *masks = (each.astype("float64") for each in inputs)
    q, k, v = (
        np.reshape(tensor, heads.split_shape).transpose(heads.operand.axes)
        for tensor, heads in zip((q, k, v), (w.q, w.k, w.v))
    )
    scores = q @ k * w.scale
    for mask, values in zip(w.masks, masks):
        if mask.fill is None:
            scores = scores + values
        else:
            scores = np.where((values != 0) != mask.hides, scores, mask.fill)
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
    result = (np.nan_to_num(weights) if w.nan_is_zero else weights) @ v
    if w.heads_last:
        result = np.moveaxis(result, 1, 2).reshape(w.out_shape)
    return result


def attention_tensors(
    w: AttentionWorkload, tile: attention.AttentionTile | None = None
) -> list[te.Tensor]:
    """The kernel of a workload, with a tile of its own or the one that is chosen."""
    stored = zip("qkv", (w.q, w.k, w.v))
    operands = [tensor(*heads.tensor_shape, dtype=w.dtype, name=name) for name, heads in stored]
    masks = [
        tensor(*mask.shape, dtype=mask.dtype(w.dtype), name=f"mask{at}")
        for at, mask in enumerate(w.masks)
    ]
    target = Target({"kind": "cuda", "arch": "sm_90"})
    config = attention.fallback(w, target) if tile is None else attention.knobs(tile)
    return [*operands, *masks, attention.compute(w, config, *operands, *masks)]


def _attention(name: str, tolerance: float, *tile: int, **options: Any) -> Family:
    w = attention_workload(**options)
    chosen = attention.AttentionTile(*tile)

    def hide(inputs: list[np.ndarray]) -> None:
        if w.diagonal is not None:
            inputs[-1][~np.tri(w.s, w.t, w.diagonal, dtype=bool)] = -np.inf

    tensors = functools.partial(attention_tensors, w, chosen)
    return Family(name, tensors, tolerance, lambda x: attended(w, x), hide)


FAMILIES = [
    Family(
        "conv", _two(lambda x, w: nn.conv2d_nchw(x, w, 1, 1, 1), (1, 12, 14, 14), (20, 12, 3, 3))
    ),
    Family(
        "conv, half, strided",
        _two(lambda x, w: nn.conv2d_nchw(x, w, 2, 1, 1), (1, 16, 9, 9), (16, 16, 3, 3), "float16"),
        0.05,
    ),
    Family(
        "depthwise",
        _two(lambda x, w: nn.depthwise_conv2d_nchw(x, w, 1, 1, 1), (1, 16, 14, 14), (16, 1, 3, 3)),
    ),
    Family("dense", _two(nn.dense, (64, 96), (80, 96))),
    Family("dense, one row", _two(nn.dense, (1, 300), (40, 300))),
    Family("batched products", _two(nn.batch_matmul, (3, 40, 48), (3, 56, 48))),
    Family("product, half", _two(_product("float32"), (128, 192), (192, 128), "float16"), 1e-4),
    Family("product, bfloat16", _two(_product("float32"), (96, 512), (512, 72), "bfloat16"), 1e-3),
    Family("product, int8", _two(_product("int32"), (128, 192), (192, 128), "int8"), 0),
    Family(
        "conv, half",
        _two(
            lambda x, w: nn.conv2d_nchw(x, w, 1, 1, 1), (2, 32, 12, 12), (64, 32, 3, 3), "float16"
        ),
        0.1,
    ),
    Family("wide reduction", _one(topi.sum, 3 << 16), 1e-3),
    Family("reduction", _one(lambda x: topi.max(x, 1), 5, 1000)),
    Family("short reduction", _one(lambda x: topi.sum(x, 1), 300, 24)),
    Family("argmax", _one(lambda x: topi.argmax(x, 1), 40, 50)),
    Family("softmax", _one(nn.softmax, 3, 1000)),
    Family("softmax, short rows", _one(nn.softmax, 530, 20)),
    Family("layer norm", _layer_norm, 1e-4),
    Family("dense, then layer norm", _norm_of_product, 1e-4),
    Family(
        "product, then softmax, half",
        _two(_softmax_of_product, (18, 2048), (2048, 72), "float16"),
        1e-4,
    ),
    Family("transpose", _one(topi.transpose, 70, 100)),
    Family(
        "layout change, half",
        _one(lambda x: topi.transpose(x, (0, 2, 3, 1)), 2, 40, 10, 9, dtype="float16"),
        0,
    ),
    Family(
        "pooling",
        _one(lambda x: nn.pool2d(x, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), "max"), 1, 8, 15, 15),
    ),
    Family("mean over an image", _one(lambda x: nn.adaptive_pool(x, (1, 1), "avg"), 1, 20, 15, 15)),
    _attention("attention", 1e-5, 2, 16, 32, masks=(Mask((20, 72)),)),
    _attention("attention, half", 2e-3, 2, 16, 32, dtype="float16", masks=(Mask((20, 72)),)),
    _attention("attention, causal", 1e-5, 1, 16, 32, masks=(Mask((20, 72)),), diagonal=30),
    Family("dense, few rows", _two(nn.dense, (3, 300), (40, 300))),
    Family(
        "depthwise in vectors",
        _two(
            lambda x, w: nn.depthwise_conv2d_nhwc(x, w, 1, 1, 1), (1, 24, 24, 128), (3, 3, 128, 1)
        ),
    ),
    Family(
        "depthwise, half, strided",
        _two(
            lambda x, w: nn.depthwise_conv2d_nhwc(x, w, 2, 1, 1),
            (1, 57, 57, 192),
            (3, 3, 192, 1),
            "float16",
        ),
        0.02,
    ),
    Family(
        "pooling, half",
        _one(
            lambda x: nn.pool2d(x, (3, 3), (2, 2), (1, 1), (1,) * 4, "max", layout="NHWC"),
            *(1, 80, 80, 64),
            dtype="float16",
        ),
        0,
    ),
    Family("elementwise, large", _one(lambda x: topi.sigmoid(x) * 3.0, 290, 260)),
    Family("elementwise", _one(lambda x: topi.tanh(topi.sigmoid(x) * 3.0) + topi.erf(x), 7, 333)),
    _wgmma(
        "product", _two(_product("float32"), (128, 448), (448, 256), "float16"), 1e-4, 128, 256, 128
    ),
    _wgmma("dense", _two(nn.dense, (100, 328), (136, 328), "float16"), 0.05, 64, 128, 128),
    _wgmma(
        "columns", _two(_columns("float32"), (768, 136), (768, 72), "bfloat16"), 1e-3, 128, 64, 128
    ),
    _wgmma(
        "three warpgroups",
        _two(_product("float32"), (200, 448), (448, 256), "float16"),
        1e-4,
        192,
        256,
        128,
    ),
    _wgmma("tf32", _two(nn.dense, (64, 320), (136, 320)), 2e-2, 64, 128, 128),
    _wgmma(
        "short steps", _two(_product("float32"), (64, 768), (768, 64), "float16"), 1e-4, 64, 64, 64
    ),
    _wgmma("int8", _two(_product("int32"), (128, 640), (640, 128), "int8"), 0, 128, 128, 128),
    _wgmma("uint8", _two(nn.dense, (64, 1536), (64, 1536), "uint8"), 0, 64, 64, 64),
    _wgmma(
        "conv",
        _two(
            lambda x, w: nn.conv2d_nhwc(x, w, 1, 1, 1, out_dtype="float16"),
            (2, 12, 12, 64),
            (3, 3, 64, 64),
            "float16",
        ),
        0.1,
        128,
        64,
        128,
    ),
    _wgmma(
        "parts of k",
        _two(_product("float32"), (64, 640), (640, 256), "bfloat16"),
        1e-3,
        64,
        256,
        128,
        parts=2,
    ),
]
