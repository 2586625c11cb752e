"""Which models a command means, and values for their inputs."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compiler.errors import ExportError, FrontendError, InputError
from compiler.support.atomic_file import atomic_write_path
from compiler.support.cache_dir import MISSING, cache_folder
from compiler.support.regular_files import os_errors_as

if TYPE_CHECKING:
    import numpy as np

    from compiler.runtime import FactoryModule, TensorInfo


def bundled() -> list[str]:
    """Names of the bundled models."""
    from compiler.models import fill_weights

    return fill_weights.names()


def find_model(name: str) -> Path:
    """The ONNX file of a model that is given by its path or by the name of a bundled one.

    A bundled model gets seeded weights the first time, which are kept in the user's cache
    folder.

    Raises FrontendError: there is neither a file nor a bundled model of that name. Raises
    ExportError: the weights can't be written.
    """
    if Path(name).exists():
        return Path(name)
    if name not in bundled():
        known = ", ".join(bundled())
        raise FrontendError(f"{name!r} is neither a file nor a bundled model (those are: {known})")
    from compiler.models import fill_weights

    skeleton = fill_weights.skeleton(name).read_bytes()
    filled = _models_folder() / f"{zlib.crc32(skeleton):08x}" / f"{name}.onnx"
    if not filled.is_file():
        try:
            _hydrate(name, filled)
        except ExportError as error:
            raise ExportError(
                f"{error}; set XDG_CACHE_HOME to a folder that can be written"
            ) from error
    return filled


def write_model(name: str, output: Path) -> int:
    """Write a bundled model, with its seeded weights, as an ONNX file; returns its bytes.

    Raises FrontendError: no bundled model has that name. Raises ExportError: the file can't be
    written.
    """
    if name not in bundled():
        raise FrontendError(f"{name!r} is not a bundled model; those are: {', '.join(bundled())}")
    _hydrate(name, output)
    return output.stat().st_size


def _models_folder() -> Path:
    folder = cache_folder()
    if folder is None:
        raise ExportError(f"the weights of bundled models can't be kept: {MISSING}")
    return folder / "models"


def _hydrate(name: str, path: Path) -> None:
    """Fill in a skeleton's weights and put the file in place whole."""
    import onnx

    from compiler.models import fill_weights

    with os_errors_as(ExportError, f"can't write {name!r} to {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write_path(path) as draft:
            onnx.save(fill_weights.hydrate(name), draft)


def random_inputs(
    inputs: Iterable[TensorInfo], seed: int = 0, extents: Mapping[str, int] | None = None
) -> dict[str, np.ndarray]:
    """Seeded values for inputs that are described by name, shape and dtype.

    Floating-point inputs are standard normal. Integers are mostly indices, so they stay where
    any table has entries: 0 or 1; token ids, by their name, below 1000. Masks are all ones.

    Raises InputError: numpy does not know the dtype, or `extents` does not have a symbol of the
    inputs.
    """
    import numpy as np

    rng = np.random.default_rng(seed)
    values: dict[str, np.ndarray] = {}
    for info in inputs:
        value: np.ndarray
        try:
            dtype = np.dtype(info.dtype)
        except TypeError as error:
            raise InputError(f"numpy has no type for {info}; give its value") from error
        shape = _shape(info, extents or {})
        if "mask" in info.name:
            value = np.ones(shape)
        elif dtype.kind == "f":
            value = rng.standard_normal(shape)
        elif "input_ids" in info.name:
            value = rng.integers(0, 1000, shape)
        else:
            value = rng.integers(0, 2, shape)
        values[info.name] = value.astype(dtype)
    return values


def _shape(info: TensorInfo, extents: Mapping[str, int]) -> tuple[int, ...]:
    shape = tuple(
        extents.get(extent, extent) if isinstance(extent, str) else extent for extent in info.shape
    )
    for extent in shape:
        if isinstance(extent, str):
            raise InputError(
                f"the input {info} has the dynamic extent {extent!r}; say how large it is: "
                f"--extent {extent}=1"
            )
    return tuple(map(int, shape))


def read_inputs(files: Mapping[str, Path]) -> dict[str, np.ndarray]:
    """Arrays from `.npy` files; anything pickled in them is refused.

    Raises InputError: a file can't be read or holds no plain array; names the input and the file.
    """
    from compiler.support.numpy_files import read_npy

    values = {}
    for name, path in files.items():
        with os_errors_as(InputError, f"input {name!r}: can't read {path}"):
            values[name] = read_npy(path)
    return values


def relative_error(values: Iterable[Any], references: Iterable[Any]) -> float:
    """Largest error of an output, relative to its reference's largest magnitude.

    Infinite if the number of outputs differs, or an error is infinite.
    """
    given, wanted = list(values), list(references)
    if len(given) != len(wanted):
        return float("inf")
    return max((error_of(*pair, floor=1.0) for pair in zip(given, wanted)), default=0.0)


def error_of(value: np.ndarray, reference: np.ndarray, floor: float = 0.01) -> float:
    """Largest difference of two arrays, relative to the largest magnitude of its row.

    A row is what the last axis counts, or the last two of more than three. `floor`: part of the
    largest magnitude of all rows that a row has at least, since sums cancel in small rows. 8-bit
    integers may differ by 1. Infinite if shapes differ, or positions of NaN and infinities.
    """
    import numpy as np

    if value.shape != reference.shape:
        return float("inf")
    width = int(np.prod(value.shape[-2 if value.ndim > 3 else -1 :])) or 1
    a, b = (each.astype("float64").reshape(-1, width) for each in (value, reference))
    finite = np.isfinite(a) & np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return float("inf")
    a, b = np.where(finite, a, 0), np.where(finite, b, 0)
    apart = np.abs(a - b) - (value.dtype.kind in "iu" and value.dtype.itemsize == 1)
    scale = np.abs(b).max(axis=1, keepdims=True, initial=np.finfo("float32").tiny)
    return float((apart / np.maximum(scale, floor * scale.max(initial=0))).max(initial=0))


def devices_of(library: FactoryModule) -> list[Any]:
    """The first device of each kind that a library was built for."""
    import tvm

    return [tvm.device(kind, 0) for kind in library.metadata.devices]
