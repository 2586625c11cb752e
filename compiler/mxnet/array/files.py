"""Files of arrays: MXNet's `.params`, numpy's `.npz`, safetensors; the name's ending decides."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from compiler.errors import ExportError
from compiler.mxnet.symbol.symbol import Symbol
from compiler.mxnet_format.params import load_params, save_params

from . import safetensors
from .ndarray import ndarray
from .wrap import from_host


def write_arrays(path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray]) -> None:
    """Write `.safetensors`, `.npz` or a `.params` list; ExportError for I/O or dtypes."""
    text = os.fspath(path)
    if text.endswith(".safetensors"):
        safetensors.write(text, arrays)
    else:
        save_params(text, arrays, "npz" if text.endswith(".npz") else "list")


def write_model(
    path: str | os.PathLike[str], epoch: int, symbol: Symbol, arrays: Mapping[str, ndarray]
) -> tuple[str, str | None]:
    """Write `<path>-symbol.json`, and arrays to `<path>-<epoch>.params`; ExportError on failure."""
    prefix = os.fspath(path)
    if epoch < 0:
        raise ExportError(f"epoch {epoch} is negative")
    symbol.save(f"{prefix}-symbol.json")
    if not arrays:
        return f"{prefix}-symbol.json", None
    filename = f"{prefix}-{epoch:04d}.params"
    save_params(filename, {name: each.asnumpy() for name, each in arrays.items()}, "npz")
    return f"{prefix}-symbol.json", filename


def read_arrays(path: str | os.PathLike[str]) -> Any:
    """Read arrays, by name, or as a list where the file has no names; raises FrontendError."""
    if os.fspath(path).endswith(".safetensors"):
        return safetensors.read(path)
    return load_params(path)


def save(file: str | os.PathLike[str], arr: Any) -> None:
    """Write one array, a list of arrays, or a dict of them."""
    if isinstance(arr, ndarray):
        arr = [arr]
    if isinstance(arr, Mapping):
        write_arrays(file, {name: each.asnumpy() for name, each in arr.items()})
        return
    if not isinstance(arr, Sequence) or not all(isinstance(each, ndarray) for each in arr):
        raise ExportError("save takes an array, a list of arrays or a dict of arrays")
    text = os.fspath(file)
    format = "npz" if text.endswith((".npz", ".npy")) else "list"
    save_params(text, [each.asnumpy() for each in arr], format)


def savez(file: str | os.PathLike[str], *args: ndarray, **kwargs: ndarray) -> None:
    """Write a numpy archive: arrays by name, those without as `arr_0`, `arr_1`, ..."""
    named = {f"arr_{i}": each for i, each in enumerate(args)} | kwargs
    save_params(file, {name: each.asnumpy() for name, each in named.items()}, "npz")


def load(file: str | os.PathLike[str]) -> Any:
    """Read a file of arrays; returns a dict, or a list where they have no names."""
    found = read_arrays(file)
    if isinstance(found, Mapping):
        return {name: from_host(each) for name, each in found.items()}
    return [from_host(each) for each in found]
