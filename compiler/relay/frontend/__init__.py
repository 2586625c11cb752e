"""Importers: a model of another framework becomes a Relax module and its parameters."""

from __future__ import annotations

from ...lazy import lazy_attributes

__getattr__ = lazy_attributes(__name__, {"from_mxnet": ".mxnet", "from_onnx": ".onnx"})
