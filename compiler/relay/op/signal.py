"""Fourier transforms."""

from __future__ import annotations

from typing import Any

from tvm import relax, topi

from ...errors import RelayTypeError
from .registry import operator
from .shapes import dtype, extents
from .te_op import kernel
from .typed_relax import op

_dft = kernel("dft", lambda re_data, im_data, inverse: topi.dft(re_data, im_data, inverse))


@operator("dft", 2, wraps=True, how="TOPI")
def dft(re_data: relax.Expr, im_data: relax.Expr, inverse: Any = False) -> relax.Expr:
    """Discrete Fourier transform along the last axis; returns real and imaginary parts."""
    return _dft(re_data, im_data, inverse=bool(inverse))


def _stft_compute(
    data: Any, window: Any, n_fft: int, hop_length: int, onesided: bool, **attrs: Any
) -> Any:
    batch, length = data.shape
    bins = n_fft // 2 + 1 if onesided else n_fft
    shape = [batch, bins, (length - n_fft) // hop_length + 1, 2]
    given = {"window": window, "onesided": onesided, "output_shape": shape}
    return topi.stft(data, n_fft, hop_length, **given, **attrs)


_stft = kernel("stft", _stft_compute)


@operator("stft", ["data", "window"], how="TOPI")
def stft(
    data: relax.Expr,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: relax.Expr | None = None,
    normalized: bool = False,
    onesided: bool = True,
) -> relax.Expr:
    """Short-time Fourier transform: (batch, bins, frames, 2)."""
    size = int(n_fft)
    hop = size // 4 if hop_length is None else int(hop_length)
    width = size if win_length is None else int(win_length)
    if window is None:
        window = op.ones([size], dtype(data))
    is_single = len(extents(data)) == 1
    if is_single:
        data = op.reshape(data, [1, *extents(data)])
    if len(extents(data)) != 2:
        raise RelayTypeError("argument data must be one signal or a batch of signals")
    flags = {"normalized": bool(normalized), "onesided": bool(onesided)}
    result = _stft(data, window, n_fft=size, hop_length=hop, win_length=width, **flags)
    return op.reshape(result, extents(result)[1:]) if is_single else result
