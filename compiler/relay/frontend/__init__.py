"""Importers: a model of another framework becomes a Relax module and its parameters."""

from __future__ import annotations

from .onnx import from_onnx

__all__ = ["from_onnx"]
