"""Names for the nodes of an ONNX model that have none."""

from __future__ import annotations

import collections
import datetime
import os
from pathlib import Path

import onnx

from compiler.errors import FrontendError


def save_with_names(model: onnx.ModelProto, folder: str | os.PathLike[str]) -> Path:
    """Save a copy of a model in which every node has a name, "<operator>_<number>".

    Parameters
    ----------
    model : onnx.ModelProto
    folder : str or path
        Made if missing; the file is `tvm_exported_model_<time>.onnx`, as TVM named it.

    Returns
    -------
    The file.

    Raises
    ------
    FrontendError
        The model is not in memory, or can't be saved there.
    """
    if not isinstance(model, onnx.ModelProto):
        raise FrontendError("export_node_renamed_model_path needs the model as a ModelProto")
    named = onnx.ModelProto()
    named.CopyFrom(model)
    counts: collections.Counter[str] = collections.Counter()
    for node in named.graph.node:
        if not node.name:
            node.name = f"{node.op_type}_{counts[node.op_type]}"
            counts[node.op_type] += 1
    time = datetime.datetime.now().strftime("%m_%d_%Y_%H_%M_%S")
    path = Path(folder) / f"tvm_exported_model_{time}.onnx"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        onnx.save(named, str(path))
    except OSError as error:
        raise FrontendError(f"{path} can't be written: {error.strerror}") from error
    return path
