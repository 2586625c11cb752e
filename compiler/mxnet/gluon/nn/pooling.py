"""Pooling over windows and over whole images."""

from __future__ import annotations

from typing import Any

from ... import npx
from ...array.ndarray import ndarray
from ..hybrid_block import HybridBlock
from .convolution import LAYOUTS, per_rank, spatial


class Pooling(HybridBlock):
    """Base class of pooling layers; the default of `strides` is `pool_size`.

    `layout`: NCW, NCHW, NCDHW, or with the channels last. `ceil_mode`: whether a last, incomplete
    window counts. `count_include_pad`: whether an average counts the padding.
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
            "layout": layout or LAYOUTS[self.rank],
            "pooling_convention": "full" if ceil_mode else "valid",
        }
        if self.kind == "avg":
            self._kwargs["count_include_pad"] = count_include_pad

    def __repr__(self) -> str:
        shown = ", ".join(f"{key}={self._kwargs[key]}" for key in ("kernel", "stride", "pad"))
        return f"{type(self).__name__}({shown})"

    def forward(self, x: ndarray) -> ndarray:
        return npx.pooling(x, **self._kwargs)


class _Whole(Pooling):
    whole = True

    def __init__(self, layout: str | None = None, **names: Any) -> None:
        super().__init__(1, 1, 0, layout, ceil_mode=True, **names)

    def __repr__(self) -> str:
        return type(self).__name__


MaxPool1D, MaxPool2D, MaxPool3D = per_rank("MaxPool{}", Pooling, "Maximum over windows")
AvgPool1D, AvgPool2D, AvgPool3D = per_rank("AvgPool{}", Pooling, "Average over windows", kind="avg")
GlobalMaxPool1D, GlobalMaxPool2D, GlobalMaxPool3D = per_rank(
    "GlobalMaxPool{}", _Whole, "Maximum over everything"
)
GlobalAvgPool1D, GlobalAvgPool2D, GlobalAvgPool3D = per_rank(
    "GlobalAvgPool{}", _Whole, "Average over everything", kind="avg"
)
