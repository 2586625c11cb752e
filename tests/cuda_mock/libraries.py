"""What the mocked cuBLASLt and cuDNN compute, with numpy, from the numbers of a call."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import ml_dtypes
import numpy as np

MATMUL, CONVOLUTION = "cublasLtMatmul", "cudnnConvolution"
FILES = {MATMUL: "libcublasLt.so.13", CONVOLUTION: "libcudnn.so.9"}
SIZES = {MATMUL: 18, CONVOLUTION: 23}
"""How many numbers describe a call."""

_CUBLASLT = {0: "float32", 2: "float16", 14: ml_dtypes.bfloat16, 3: "int8", 10: "int32"}
_CUDNN = {0: "float32", 2: "float16", 9: ml_dtypes.bfloat16}


def compute(name: str, numbers: Sequence[int], pointers: Sequence[int]) -> None:
    """Do what a call does, and leave nothing in its workspace that could be of use."""
    *_, workspace, _ = pointers
    _memory(workspace, numbers[-1], "uint8")[:] = 0xFF
    (_matmul if name == MATMUL else _convolve)(numbers, pointers)


def _memory(address: int, count: int, dtype: object) -> np.ndarray:
    nbytes = count * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_uint8 * nbytes).from_address(address), dtype)


def _matmul(numbers: Sequence[int], pointers: Sequence[int]) -> None:
    flip_a, flip_b, epilogue, _, kind, out, m, n, k, lda, ldb, ldd, batch, *rest = numbers
    stride_a, stride_b, stride_d, bias_kind, _ = rest
    exact = "int32" if out == 10 else "float32"

    def columns(
        at: int, index: int, ld: int, stride: int, shape: tuple[int, int], of: int
    ) -> np.ndarray:
        dtype = np.dtype(_CUBLASLT[of])
        start = pointers[at] + index * stride * dtype.itemsize
        return _memory(start, ld * shape[1], dtype).reshape(shape[1], ld)[:, : shape[0]].T

    for index in range(batch):
        a = columns(0, index, lda, stride_a, (k, m) if flip_a else (m, k), kind).astype(exact)
        b = columns(1, index, ldb, stride_b, (n, k) if flip_b else (k, n), kind).astype(exact)
        d = columns(2, index, ldd, stride_d, (m, n), out)
        found = (a.T if flip_a else a) @ (b.T if flip_b else b)
        if epilogue & 4:
            found += _memory(pointers[3], m, _CUBLASLT[bias_kind]).astype(exact)[:, None]
        d[:] = np.maximum(found, 0) if epilogue & 2 else found


def _convolve(numbers: Sequence[int], pointers: Sequence[int]) -> None:
    layout, kind, n, c, h, w, out, per_group, kh, kw, oh, ow, *rest = numbers
    ph, pw, sh, sw, dh, dw, groups, _, activation, _, _ = rest

    def tensor(at: int, shape: tuple[int, int, int, int]) -> np.ndarray:
        flat = _memory(pointers[at], int(np.prod(shape)), _CUDNN[kind])
        if layout == 0:
            return flat.reshape(shape)
        return flat.reshape(shape[0], shape[2], shape[3], shape[1]).transpose(0, 3, 1, 2)

    x = np.pad(tensor(0, (n, c, h, w)).astype("float32"), ((0, 0), (0, 0), (ph, ph), (pw, pw)))
    weights = tensor(1, (out, per_group, kh, kw)).astype("float32")
    found = np.zeros((n, groups, out // groups, oh, ow), "float32")
    for i in range(kh):
        for j in range(kw):
            rows, cols = (
                slice(i * dh, i * dh + sh * (oh - 1) + 1, sh),
                slice(j * dw, j * dw + sw * (ow - 1) + 1, sw),
            )
            part = x[:, :, rows, cols].reshape(n, groups, per_group, oh, ow)
            tap = weights[:, :, i, j].reshape(groups, out // groups, per_group)
            found += np.einsum("ngcyx,goc->ngoyx", part, tap)
    found = found.reshape(n, out, oh, ow)
    if pointers[3]:
        found += _memory(pointers[3], out, _CUDNN[kind]).astype("float32")[:, None, None]
    tensor(2, (n, out, oh, ow))[:] = np.maximum(found, 0) if activation == 1 else found
