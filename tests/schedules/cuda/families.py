"""One function of each family of CUDA kernels, large enough that every loop goes round.

What the interpreter proves, what mutations are made of, and what `make gpu-test` runs on a GPU is
this one table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import te, tirx, topi
from tvm.target import Target

from schedules.cuda import rules
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
    """

    name: str
    tensors: Callable[[], list[te.Tensor]]
    tolerance: float = 1e-5

    def func(self) -> tirx.PrimFunc:
        """The function without a schedule."""
        return te.create_prim_func(self.tensors())

    def scheduled(self, arch: str = "sm_90") -> tuple[str, tirx.PrimFunc, Target]:
        """The rule that takes it for an architecture, what it makes of it, and the target."""
        target = Target({"kind": "cuda", "arch": arch}, host="llvm")
        func = self.func()
        for rule in rules():
            schedule = rule.apply(func, target, False)
            if schedule is not None:
                return rule.name, schedule.mod["main"], target
        raise AssertionError(f"no rule takes {self.name}")

    def inputs(self) -> list[np.ndarray]:
        """Values for all parameters but the last."""
        rng = np.random.default_rng(0)
        return [_values(rng, param) for param in self.func().params[:-1]]

    def check(self, found: np.ndarray, inputs: list[np.ndarray]) -> None:
        """Compare a result with the function's without a schedule, on the CPU."""
        expected = reference(self.func(), inputs)
        np.testing.assert_allclose(
            found.astype("float64"), expected, rtol=self.tolerance, atol=self.tolerance
        )


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


def _layer_norm() -> list[te.Tensor]:
    x, scale, shift = tensor(6, 512), tensor(512, name="scale"), tensor(512, name="shift")
    return [x, scale, shift, nn.layer_norm(x, scale, shift, [1], 1e-5)]


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
    Family("layer norm", _layer_norm, 1e-4),
    Family("transpose", _one(topi.transpose, 70, 100)),
    Family(
        "pooling",
        _one(lambda x: nn.pool2d(x, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), "max"), 1, 8, 15, 15),
    ),
    Family("mean over an image", _one(lambda x: nn.adaptive_pool(x, (1, 1), "avg"), 1, 20, 15, 15)),
    Family("elementwise", _one(lambda x: topi.tanh(topi.sigmoid(x) * 3.0) + topi.erf(x), 7, 333)),
]
