"""Converters of onnxruntime's own operators, of the domains com.microsoft and com.microsoft.nchwc.

Its optimiser and its tools write these into models. An attribute that a converter does not read is
refused, so that a converter reads also those that mean nothing at inference.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...onnx_node import Node
from . import activation, attention, fused, normalization

CONVERTERS: dict[tuple[str, str], Callable[[Node], Any]] = {
    ("com.microsoft", name): converter
    for family in (activation, attention, fused, normalization)
    for name, converter in family.CONVERTERS.items()
}

REFUSED: dict[tuple[str, str], str] = {}
"""Operators that are not supported, and why."""
