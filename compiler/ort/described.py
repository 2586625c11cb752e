"""Model descriptions that a session reports."""

from __future__ import annotations

from dataclasses import dataclass, field

Shapes = tuple[tuple[int, ...], ...]
"""Extents of the inputs, in their order."""


@dataclass(frozen=True)
class NodeArg:
    """An input or output of a model."""

    name: str
    shape: list[int | str | None]  # extents: an int, the name of an open one, or None
    type: str  # for example "tensor(float)"
    is_ranked: bool = True  # False for a tensor of unknown rank, whose shape is []

    def __str__(self) -> str:
        return f"{self.name}: {self.type}{self.shape}"


@dataclass(frozen=True)
class ModelMetadata:
    """Model metadata."""

    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata_map: dict[str, str] = field(default_factory=dict)
