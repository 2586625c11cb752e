"""Layout conversion and window padding."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm import relax

from ....errors import RelayTypeError
from ..shapes import Extent, integers
from ..transform import layout_transform
from ..typed_relax import op

PLAIN = {
    "data": {1: "NCW", 2: "NCHW", 3: "NCDHW"},
    "kernel": {1: "OIW", 2: "OIHW", 3: "OIDHW"},
    "transposed": {1: "IOW", 2: "IOHW", 3: "IODHW"},
}


def is_plain(layout: str) -> bool:
    """Whether a layout only permutes axes: NHWC does, NCHW8c does not."""
    return layout.isalpha() and layout.isupper()


def convert(data: relax.Expr, source: str, target: str) -> relax.Expr:
    """Convert `data` to another layout."""
    return data if source == target else layout_transform(data, source, target)


def permuted(values: Sequence[Extent], source: str, target: str) -> list[Extent]:
    """Permute extents of one unblocked layout to another."""
    if sorted(source) != sorted(target):
        raise RelayTypeError(f"the layout {target!r} is not an order of the axes {source!r}")
    return [values[source.index(letter)] for letter in target]


def packed(values: Sequence[Extent], source: str, target: str) -> list[Extent]:
    """Extents in another, e.g. blocked, layout: 64, 32, 3, 3 as OIHW4i16o -> 4, 8, 3, 3, 4, 16."""
    if is_plain(target):
        return permuted(values, source, target)
    extent = dict(zip(source, values))
    axes = re.findall(r"(\d*)([A-Za-z])", target)
    blocks = {letter: int(factor) for factor, letter in axes if letter.islower()}
    if sorted(letter for _, letter in axes if letter.isupper()) != sorted(source):
        raise RelayTypeError(f"the layout {target!r} does not have the axes {source!r}")
    return [
        blocks[letter] if letter.islower() else extent[letter] // blocks.get(letter.lower(), 1)
        for _, letter in axes
    ]


def paddings(padding: Any, count: int) -> list[int]:
    """Expand padding to (before..., after...) from 1, `count` or 2 * `count` values."""
    values = integers(padding)
    if len(values) == 1:
        return values * (2 * count)
    if len(values) == count:
        return values * 2
    if len(values) == 2 * count:
        return values
    raise RelayTypeError(f"padding must be 1, {count} or {2 * count} numbers, not {values}")


def window_attributes(count: int) -> dict[str, Callable[[Any], Any]]:
    """Functions that expand window attributes to one value per axis or side."""

    def each(value: Any) -> Any:
        return None if value is None else integers(value, count)

    return {
        "strides": each,
        "dilation": each,
        "kernel_size": each,
        "pool_size": each,
        "output_padding": each,
        "padding": lambda value: paddings(value, count),
    }


def with_signature(
    make: Callable[..., Any], operands: str, attributes: Mapping[str, Any]
) -> Callable[..., Any]:
    """Set the parameters of a function of keywords: operands, then attributes with defaults."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    named = [inspect.Parameter(name, kind) for name in operands.split()]
    named += [inspect.Parameter(name, kind, default=value) for name, value in attributes.items()]
    make.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]
    return make


def convolution_attributes(count: int, kernel: str = "kernel", **more: Any) -> dict[str, Any]:
    """Attributes of convolutions over `count` spatial axes, with their defaults."""
    ones, zeros = (1,) * count, (0,) * count
    return {
        **{"strides": ones, "padding": zeros, "dilation": ones, "groups": 1},
        **{"channels": None, "kernel_size": None, "data_layout": PLAIN["data"][count]},
        **{"kernel_layout": PLAIN[kernel][count], "out_layout": "", **more, "out_dtype": ""},
    }


def spatial_axes(layout: str) -> list[int]:
    """Positions of the spatial letters D, H and W, in layout order."""
    return [axis for axis, letter in enumerate(layout) if letter in "DHW"]


def spread(vector: relax.Expr, axis: int, ndim: int) -> relax.Expr:
    """Reshape a vector to broadcast along `axis` of `ndim` dimensions."""
    after = ndim - 1 - axis
    return vector if after == 0 else op.expand_dims(vector, list(range(1, after + 1)))
