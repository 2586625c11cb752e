"""Reading models for `tvmc`, by the names of their formats."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from compiler import relay
from compiler.cli.model_files import read_model

from . import TVMCException, TVMCImportError
from .model import TVMCModel
from .runner import generate_tensor_data

_SUFFIXES = {
    "onnx": ("onnx",),
    "pytorch": ("pth", "zip"),
    "relay": ("relay",),
    "tflite": ("tflite",),
    "keras": ("h5",),
    "paddle": ("pdmodel",),
    "pb": ("pb",),
}
_WITHOUT_IMPORTER = {
    "keras": "export the model as ONNX or TFLite",
    "paddle": "export the model as ONNX",
    "pb": "export the model as ONNX or TFLite",
}


def get_frontend_names() -> list[str]:
    """The names of the formats."""
    return list(_SUFFIXES)


def guess_frontend(path: str | os.PathLike[str]) -> str:
    """The format that a file's name ends like.

    Raises
    ------
    TVMCException
        It ends like none.
    """
    suffix = Path(path).suffix.lower().removeprefix(".")
    for name, suffixes in _SUFFIXES.items():
        if suffix in suffixes:
            return name
    raise TVMCException("failed to infer the model format. Please specify --model-format")


def load_model(
    path: str | os.PathLike[str],
    model_format: str | None = None,
    shape_dict: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> TVMCModel:
    """Import a model file.

    Parameters
    ----------
    path : str or path
    model_format : str, optional
        One of `get_frontend_names`; by default what the file's name ends like.
    shape_dict : dict of str to shape, optional
        Of inputs; PyTorch models need them. Where Relay text comes with them, its other parameters
        are random weights, unless a file `.params` is beside it.
    **kwargs
        For the importer.

    Raises
    ------
    TVMCException
        The format is unknown, has no importer, or needs `shape_dict`.
    FrontendError
        The model can't be imported.
    """
    chosen = model_format or guess_frontend(path)
    if chosen in _WITHOUT_IMPORTER:
        raise TVMCException(f"no importer for {chosen!r} is left: {_WITHOUT_IMPORTER[chosen]}")
    if chosen not in _SUFFIXES:
        known = ", ".join(_SUFFIXES)
        raise TVMCException(f"unrecognized frontend {chosen!r}. Choose from: {known}")
    shapes = {name: tuple(shape) for name, shape in (shape_dict or {}).items()}
    if chosen == "pytorch":
        return TVMCModel(*_of_pytorch(path, shapes, kwargs))
    if chosen == "onnx":
        mod, params = relay.frontend.from_onnx(path, shapes, freeze_params=False, **kwargs)
    elif chosen == "tflite":
        mod, params = relay.frontend.from_tflite(str(path), shapes, **kwargs)
    else:
        mod, params = read_model(Path(path), {})
        params = {**_random_weights(mod, shapes), **params}
    return TVMCModel(mod, params)


def _random_weights(mod: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Values for parameters of Relay text, which holds none, but for the named inputs."""
    return {
        str(var.name): generate_tensor_data(_extents(var), str(var.ty.dtype), "random")
        for var in mod["main"].params
        if inputs and str(var.name) not in inputs
    }


def _extents(var: Any) -> tuple[int, ...]:
    return tuple(int(extent) for extent in var.ty.shape)


def _of_pytorch(path: Any, shapes: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
    """Module and weights of a file that `torch.jit.save` wrote."""
    if not shapes:
        raise TVMCException("--input-shapes must be specified for PyTorch models")
    try:
        import torch
    except ImportError as error:
        raise TVMCImportError("PyTorch models need the package torch") from error
    traced = torch.jit.load(str(path)).float().eval()
    return relay.frontend.from_pytorch(traced, list(shapes.items()), **options)
