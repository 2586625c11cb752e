"""Pooling over windows and over whole images."""

from __future__ import annotations

from typing import Any

from ... import npx
from ...array.ndarray import ndarray
from ..hybrid_block import HybridBlock
from .convolution import _LAYOUTS, spatial


class Pooling(HybridBlock):
    """Base class of pooling layers.

    Parameters
    ----------
    pool_size, strides, padding : int or tuple of int
        The default of `strides` is `pool_size`.
    layout : str, optional
        NCW, NCHW, NCDHW, or with the channels last.
    ceil_mode : bool
        Whether a last, incomplete window counts.
    count_include_pad : bool
        Whether an average counts the padding.
    """

    rank = 0
    kind = "max"
    whole = False

    def __init__(
        self,
        pool_size: Any = 2,
        strides: Any = None,
        padding: Any = 0,
        layout: str | None = None,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        **names: Any,
    ) -> None:
        super().__init__(**names)
        size = spatial(pool_size, self.rank)
        self._kwargs: dict[str, Any] = {
            "kernel": size,
            "stride": size if strides is None else spatial(strides, self.rank),
            "pad": spatial(padding, self.rank),
            "global_pool": self.whole,
            "pool_type": self.kind,
            "layout": layout or _LAYOUTS[self.rank],
            "pooling_convention": "full" if ceil_mode else "valid",
        }
        if self.kind == "avg":
            self._kwargs["count_include_pad"] = count_include_pad

    def __repr__(self) -> str:
        shown = ", ".join(f"{key}={self._kwargs[key]}" for key in ("kernel", "stride", "pad"))
        return f"{type(self).__name__}({shown})"

    def forward(self, x: ndarray) -> ndarray:
        return npx.pooling(x, **self._kwargs)


class MaxPool1D(Pooling):
    """Maximum over windows of one axis; see `Pooling`."""

    rank = 1


class MaxPool2D(Pooling):
    """Maximum over windows of two axes; see `Pooling`."""

    rank = 2


class MaxPool3D(Pooling):
    """Maximum over windows of three axes; see `Pooling`."""

    rank = 3


class AvgPool1D(Pooling):
    """Average over windows of one axis; see `Pooling`."""

    rank, kind = 1, "avg"


class AvgPool2D(Pooling):
    """Average over windows of two axes; see `Pooling`."""

    rank, kind = 2, "avg"


class AvgPool3D(Pooling):
    """Average over windows of three axes; see `Pooling`."""

    rank, kind = 3, "avg"


class _Whole(Pooling):
    whole = True

    def __init__(self, layout: str | None = None, **names: Any) -> None:
        super().__init__(1, 1, 0, layout, ceil_mode=True, **names)

    def __repr__(self) -> str:
        return type(self).__name__


class GlobalMaxPool1D(_Whole):
    """Maximum over the axis."""

    rank = 1


class GlobalMaxPool2D(_Whole):
    """Maximum over both axes."""

    rank = 2


class GlobalMaxPool3D(_Whole):
    """Maximum over all three axes."""

    rank = 3


class GlobalAvgPool1D(_Whole):
    """Average over the axis."""

    rank, kind = 1, "avg"


class GlobalAvgPool2D(_Whole):
    """Average over both axes."""

    rank, kind = 2, "avg"


class GlobalAvgPool3D(_Whole):
    """Average over all three axes."""

    rank, kind = 3, "avg"
