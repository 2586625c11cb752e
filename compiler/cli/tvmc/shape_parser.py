"""`--input-shapes "data:[1,3,224,224] mask:[1,-1]"`."""

from __future__ import annotations

import argparse
import re
from typing import Any

from compiler.relay import Any as Unknown

_ONE = re.compile(r"(?:\w+/)?[:\w.]+:\s*\[-?\d+(?:,\s*-?\d+)*\]")


def parse_shape_string(inputs_string: str) -> dict[str, list[Any]]:
    """Shapes by the names of inputs; extents that are not positive are unknown.

    Raises argparse.ArgumentTypeError: the text holds no shape.
    """
    found = _ONE.findall(inputs_string)
    if not found:
        raise argparse.ArgumentTypeError(
            "--input-shapes argument must be of the form "
            '"input_name:[dim1,dim2,...,dimn] input_name2:[dim1,dim2]"'
        )
    shapes = {}
    for text in found:
        name, _, shape = text.replace(" ", "").rpartition(":")
        extents = [int(extent) for extent in shape.strip("[]").split(",")]
        shapes[name] = [extent if extent > 0 else Unknown() for extent in extents]
    return shapes
