"""Layers that move blocks of channels into spatial axes."""

from __future__ import annotations

from typing import Any, ClassVar

from compiler.errors import BlockArgumentError

from ... import np
from ...array.ndarray import ndarray
from ..hybrid_block import HybridBlock


class PixelShuffle1D(HybridBlock):
    """Pixel shuffle of (N, f * C, W) to (N, C, W * f).

    Parameters
    ----------
    factor : int or tuple of int
        How much longer each spatial axis gets.

    Raises
    ------
    BlockArgumentError
        Factors are not positive ints, one for each spatial axis; or, in a call, the data has
        another number of axes, or its channels are no multiple of the factors' product.
    """

    axes: ClassVar[int] = 1

    def __init__(self, factor: int | tuple[int, ...], **names: Any) -> None:
        super().__init__(**names)
        factors = (factor,) * self.axes if isinstance(factor, int) else tuple(factor)
        valid = all(isinstance(each, int) and each > 0 for each in factors)
        if len(factors) != self.axes or not valid:
            raise BlockArgumentError(
                f"{type(self).__name__}: factor must be one positive int or {self.axes} of them, "
                f"not {factor!r}"
            )
        self._factors = factors

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(str, self._factors))})"

    def forward(self, x: ndarray) -> ndarray:
        count, block = self.axes, 1
        for factor in self._factors:
            block *= factor
        if x.ndim != count + 2 or x.shape[1] % block:
            raise BlockArgumentError(
                f"{self!r}: data of shape {x.shape} must have {count + 2} axes and a multiple of "
                f"{block} channels"
            )
        batch, channels, *extents = x.shape
        split = np.reshape(x, (batch, channels // block, *self._factors, *extents))
        order = [axis for i in range(count) for axis in (2 + count + i, 2 + i)]
        longer = [extent * factor for extent, factor in zip(extents, self._factors)]
        return np.reshape(np.transpose(split, (0, 1, *order)), (batch, channels // block, *longer))


class PixelShuffle2D(PixelShuffle1D):
    """Pixel shuffle of (N, f1 * f2 * C, H, W) to (N, C, H * f1, W * f2); see PixelShuffle1D."""

    axes = 2


class PixelShuffle3D(PixelShuffle1D):
    """Pixel shuffle of (N, f1 * f2 * f3 * C, D, H, W) to (N, C, D * f1, H * f2, W * f3)."""

    axes = 3
