"""Converters of onnxruntime's own operators, of the domains com.microsoft and com.microsoft.nchwc.

Its optimizer and its tools write these into models. An attribute that a converter does not read is
refused, so that a converter reads also those that mean nothing at inference.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from compiler.support.text_tables import names_in_state, read_table

from ...node import Node
from . import (
    activation,
    attention,
    fused,
    general,
    grouped_attention,
    nchwc,
    normalization,
    quantized,
)

CONVERTERS: dict[tuple[str, str], Callable[[Node], Any]] = {
    ("com.microsoft", name): converter
    for family in (
        *(activation, attention, fused, general, grouped_attention, normalization, quantized),
    )
    for name, converter in family.CONVERTERS.items()
} | {(nchwc.DOMAIN, name): converter for name, converter in nchwc.CONVERTERS.items()}

_REASONS = names_in_state(read_table(__file__, "unsupported.txt"), "unsupported")
REFUSED = {("com.microsoft", name): reason for name, reason in _REASONS.items()}
"""Operators that are not supported, and why."""
