"""Fourier transforms."""

from __future__ import annotations

from typing import Any

from tvm import relax, topi

from ...errors import RelayTypeError
from ..type_infer import infer_type
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
    data: Any,
    window: Any,
    n_fft: int,
    hop_length: int,
    win_length: int,
    normalized: bool,
    onesided: bool,
) -> Any:
    batch, length = data.shape
    bins = n_fft // 2 + 1 if onesided else n_fft
    shape = [batch, bins, (length - n_fft) // hop_length + 1, 2]
    return topi.stft(data, n_fft, hop_length, win_length, window, normalized, onesided, shape)


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
    if len(extents(data)) == 1:
        data = op.reshape(data, [1, *extents(data)])
        result = infer_type(_stft_call(data, window, size, hop, width, normalized, onesided))
        return op.reshape(result, extents(result)[1:])
    if len(extents(data)) != 2:
        raise RelayTypeError("argument data must be one signal or a batch of signals")
    return _stft_call(data, window, size, hop, width, normalized, onesided)


def _stft_call(
    data: relax.Expr,
    window: relax.Expr,
    n_fft: int,
    hop_length: int,
    win_length: int,
    normalized: bool,
    onesided: bool,
) -> relax.Expr:
    return _stft(
        data,
        window,
        n_fft=n_fft,
        hop_length=hop_length,
        win_length=win_length,
        normalized=bool(normalized),
        onesided=bool(onesided),
    )
