"""Convolutions and transposed convolutions of one, two and three axes."""

from __future__ import annotations

from typing import Any

from compiler.errors import BlockArgumentError

from ... import np, npx
from ...array.ndarray import ndarray
from ..hybrid_block import HybridBlock
from .basic import Linear

LAYOUTS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}


def spatial(value: Any, rank: int) -> tuple[int, ...]:
    """One number per spatial axis; BlockArgumentError unless one number or `rank` of them."""
    found = (value,) * rank if isinstance(value, int) else tuple(value)
    if len(found) != rank:
        raise BlockArgumentError(f"{value!r} does not have {rank} items")
    return found


def per_rank(name: str, base: type, what: str, **attrs: Any) -> Any:
    """Make the classes of a layer for one, two and three spatial axes."""
    return (
        type(
            name.format(f"{rank}D"),
            (base,),
            {"__doc__": f"{what}, {rank} spatial axes.", "__module__": base.__module__}
            | {"rank": rank, **attrs},
        )
        for rank in (1, 2, 3)
    )


class Convolution(Linear):
    """Base class of convolutions; use Conv1D, Conv2D, Conv3D.

    Parameters
    ----------
    channels : int
        Of the result.
    kernel_size, strides, padding, dilation : int or tuple of int
    groups : int
    layout : str
        NCW, NCHW, NCDHW, or with the channels last.
    in_channels : int
        Of the data; 0 takes them from the first call.
    activation : str, optional
    use_bias : bool
    """

    rank = 0
    transposed = False

    def __init__(
        self,
        channels: int,
        kernel_size: Any,
        strides: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        layout: str | None = None,
        in_channels: int = 0,
        activation: str | None = None,
        use_bias: bool = True,
        weight_initializer: Any = None,
        bias_initializer: Any = "zeros",
        output_padding: Any = 0,
        dtype: Any = "float32",
        **names: Any,
    ) -> None:
        super().__init__(**names)
        rank = self.rank
        self._channels = channels
        self._groups = groups
        self._layout = layout or LAYOUTS[rank]
        if sorted(self._layout) != sorted(LAYOUTS[rank]) or self._layout[0] != "N":
            raise BlockArgumentError(f"layout {layout!r} of a convolution of {rank} axes")
        self._kernel = spatial(kernel_size, rank)
        self._window = {
            "kernel": self._kernel,
            "stride": spatial(strides, rank),
            "pad": spatial(padding, rank),
            "dilate": spatial(dilation, rank),
        }
        if self.transposed:
            self._window["adj"] = spatial(output_padding, rank)
        shape, initial = self._weight_shape(in_channels), (weight_initializer, bias_initializer)
        self._declare(shape, channels, dtype, *initial, use_bias, activation)

    def _weight_shape(self, inputs: int) -> tuple[int, ...]:
        if self.transposed:
            return (inputs, self._channels // self._groups, *self._kernel)
        each = inputs // self._groups
        if self._layout.endswith("C"):
            return (self._channels, *self._kernel, each)
        return (self._channels, each, *self._kernel)

    def __repr__(self) -> str:
        window = ", ".join(f"{key}={value}" for key, value in self._window.items())
        return f"{type(self).__name__}({self._channels}, {window})"

    def infer_shape(self, x: ndarray, *_: Any) -> None:
        self.weight.shape = self._weight_shape(x.shape[self._layout.index("C")])

    def forward(self, x: ndarray) -> ndarray:
        function: Any = npx.deconvolution if self.transposed else npx.convolution
        own = {"num_filter": self._channels, "num_group": self._groups, "layout": self._layout}
        return self._compute(function, x, **own, **self._window)


class _Transposed(Convolution):
    transposed = True

    def __init__(
        self,
        channels: int,
        kernel_size: Any,
        strides: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        layout: str | None = None,
        in_channels: int = 0,
        **kwargs: Any,
    ) -> None:
        window = kernel_size, strides, padding, dilation
        kwargs["output_padding"] = output_padding
        super().__init__(channels, *window, groups, layout, in_channels, **kwargs)


Conv1D, Conv2D, Conv3D = per_rank("Conv{}", Convolution, "Convolution")
Conv1DTranspose, Conv2DTranspose, Conv3DTranspose = per_rank(
    "Conv{}Transpose", _Transposed, "Transposed convolution"
)


class ReflectionPad2D(HybridBlock):
    """Reflection at the edges of images."""

    def __init__(self, padding: int | tuple[int, ...] = 0, **names: Any) -> None:
        super().__init__(**names)
        self._padding = ((0, 0), (0, 0), (padding,) * 2, (padding,) * 2)

    def forward(self, x: ndarray) -> ndarray:
        return np.pad(x, self._padding, mode="reflect")
