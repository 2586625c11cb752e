"""`tvm.contrib.target.onnx`: Relay modules as ONNX models."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import tvm

from ...backends import onnx_export
from ...errors import UnsupportedOperatorError
from ...relay.relax_to_relay import to_relax

if TYPE_CHECKING:
    from onnx import ModelProto


def to_onnx(
    relay_ir: Any,
    params: Mapping[str, Any] | None,
    name: str,
    opset_version: int | None = None,
    path: str | os.PathLike[str] | None = None,
) -> ModelProto:
    """Export a Relay module or function.

    `params`: parameters that become initializers. `name`: the graph's. `opset_version`: by default
    the version that the exporter writes; ONNX converts it to another. `path`: a file for the model.
    Raises UnsupportedOperatorError: an operator can't be expressed, or not in that version.
    """
    import onnx
    from onnx import version_converter

    mod = relay_ir if isinstance(relay_ir, tvm.IRModule) else tvm.IRModule.from_expr(relay_ir)
    arrays = {
        key: value.numpy() if hasattr(value, "numpy") else np.asarray(value)
        for key, value in (params or {}).items()
    }
    model = onnx_export.to_onnx(to_relax(mod), arrays)
    model.graph.name = name
    if opset_version not in (None, onnx_export.OPSET):
        try:
            model = version_converter.convert_version(model, opset_version)
        except RuntimeError as error:
            raise UnsupportedOperatorError(f"{name} in opset {opset_version}: {error}") from error
    if path is not None:
        onnx.save(model, os.fspath(path))
    return model
