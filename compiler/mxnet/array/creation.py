"""Creation functions of `np`: computed at once, in a trace operators without inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as _np

from compiler.errors import ArrayError, ArrayTypeError

from ..device import Device, cpu, current_device, gpu
from .invoke import invoke
from .ndarray import ndarray
from .value import Value, call_site, current_trace
from .wrap import dtype_name, from_host, wrap


def _place(device: Device | None, ctx: Device | None) -> Device:
    return device or ctx or current_device()


def array(
    object: Any, dtype: Any = None, device: Device | None = None, ctx: Device | None = None
) -> ndarray:
    """A copy of data on the host, or of an array; floats are float32 unless numpy says more."""
    if isinstance(object, ndarray):
        found = object if dtype is None else object.astype(dtype)
        return found.copy().to_device(device or ctx or found.device)
    is_numpy = isinstance(object, (_np.ndarray, _np.generic))
    try:
        host = _np.asarray(object)
    except ValueError as error:
        raise ArrayError(f"{call_site()}: {error}") from error
    if dtype is not None:
        host = host.astype(dtype_name(dtype))
    elif not is_numpy and host.dtype == _np.float64:
        host = host.astype("float32")
    return from_host(host, _place(device, ctx))


def asarray(a: Any, dtype: Any = None) -> ndarray:
    """The array itself where it is one of that dtype, else `array` of it."""
    if isinstance(a, ndarray) and (dtype is None or a.dtype == _np.dtype(dtype)):
        return a
    return array(a, dtype)


def from_numpy(a: _np.ndarray, zero_copy: bool = True) -> ndarray:
    """An array in the memory of a numpy array, where that is possible.

    The memory must be contiguous and writable; else, or with zero_copy=False, it is copied. The
    array sees later changes of the numpy array until it has been changed itself.
    """
    import tvm_ffi

    name = dtype_name(a.dtype)
    if not zero_copy or not a.flags.c_contiguous or not a.flags.writeable:
        return from_host(a, cpu())
    # Memory that is not aligned for kernels is shared too; calls of kernels copy it.
    tensor = tvm_ffi.from_dlpack(a, require_alignment=0)
    return wrap(Value(tuple(a.shape), name, cpu(), tensor))


def from_dlpack(x: Any) -> ndarray:
    """An array in the memory of any object that has DLPack's protocol."""
    import tvm_ffi

    tensor = tvm_ffi.from_dlpack(x, require_alignment=0, require_contiguous=True)
    kind = {"cpu": cpu, "cuda": gpu}.get(tensor.device.type)
    if kind is None:
        raise ArrayTypeError(f"{call_site()}: memory of a device {tensor.device}")
    shape = tuple(int(extent) for extent in tensor.shape)
    return wrap(Value(shape, dtype_name(str(tensor.dtype)), kind(tensor.device.index), tensor))


def _create(op: str, host: Any, attrs: dict[str, Any], device: Device) -> ndarray:
    """A creation operator in a trace, the host's result elsewhere."""
    if current_trace() is not None:
        return invoke(op, [], {**attrs, "ctx": repr(device)}, device=device)[0]
    return from_host(host(), device)


def as_shape(shape: Any) -> tuple[int, ...]:
    extents = (shape,) if isinstance(shape, (int, _np.integer)) else tuple(shape)
    if any(extent < 0 for extent in extents):
        raise ArrayError(f"{call_site()}: the shape {extents} has a negative extent")
    return tuple(int(extent) for extent in extents)


def _filled(name: str, number: int) -> Callable[..., ndarray]:
    def function(
        shape: Any, dtype: Any = None, order: str = "C", device: Device | None = None,
        ctx: Device | None = None,
    ) -> ndarray:  # fmt: skip
        extents, kind = as_shape(shape), dtype_name(dtype)
        attrs = {"shape": extents, "dtype": kind}
        make = lambda: _np.full(extents, number, kind)  # noqa: E731
        return _create(f"_npi_{name}", make, attrs, _place(device, ctx))

    function.__name__ = name
    function.__doc__ = f"{name.capitalize()}, float32 by default."
    return function


zeros, ones = _filled("zeros", 0), _filled("ones", 1)
empty = zeros


def full(
    shape: Any, fill_value: float, dtype: Any = None, order: str = "C",
    device: Device | None = None, ctx: Device | None = None,
) -> ndarray:  # fmt: skip
    """One number everywhere."""
    extents, name = as_shape(shape), dtype_name(dtype)
    attrs = {"shape": extents, "value": float(fill_value), "dtype": name}
    make = lambda: _np.full(extents, fill_value, name)  # noqa: E731
    return _create("_npi_full", make, attrs, _place(device, ctx))


def arange(
    start: float, stop: float | None = None, step: float = 1, dtype: Any = None,
    device: Device | None = None, ctx: Device | None = None,
) -> ndarray:  # fmt: skip
    """Evenly spaced numbers, float32 by default."""
    if stop is None:
        start, stop = 0, start
    name = dtype_name(dtype)
    attrs = {"start": start, "stop": stop, "step": step, "repeat": 1, "dtype": name}
    make = lambda: _np.arange(start, stop, step).astype(name)  # noqa: E731
    return _create("_npi_arange", make, attrs, _place(device, ctx))


def linspace(
    start: float, stop: float, num: int = 50, endpoint: bool = True, dtype: Any = None,
    device: Device | None = None, ctx: Device | None = None,
) -> ndarray:  # fmt: skip
    """`num` evenly spaced numbers from start to stop."""
    name = dtype_name(dtype)
    attrs = {"start": start, "stop": stop, "num": num, "endpoint": endpoint, "dtype": name}
    make = lambda: _np.linspace(start, stop, num, endpoint).astype(name)  # noqa: E731
    return _create("_npi_linspace", make, attrs, _place(device, ctx))


def eye(
    N: int, M: int | None = None, k: int = 0, dtype: Any = None,
    device: Device | None = None, ctx: Device | None = None,
) -> ndarray:  # fmt: skip
    """1 on the k-th diagonal, 0 elsewhere."""
    name = dtype_name(dtype)
    attrs = {"N": N, "M": M, "k": k, "dtype": name}
    return _create("_npi_eye", lambda: _np.eye(N, M, k, name), attrs, _place(device, ctx))


def identity(n: int, dtype: Any = None) -> ndarray:
    """A square matrix with 1 on its diagonal."""
    return eye(n, dtype=dtype)


def full_like(a: ndarray, fill_value: float, dtype: Any = None) -> ndarray:
    """One number everywhere, in the shape of an array."""
    name = dtype_name(dtype, a._value.dtype)
    return invoke("_npi_full_like", [a], {"fill_value": float(fill_value), "dtype": name})[0]


def zeros_like(a: ndarray, dtype: Any = None) -> ndarray:
    """Zeros in the shape of an array."""
    return full_like(a, 0, dtype)


def ones_like(a: ndarray, dtype: Any = None) -> ndarray:
    """Ones in the shape of an array."""
    return full_like(a, 1, dtype)


empty_like = zeros_like


def tril(m: ndarray, k: int = 0) -> ndarray:
    """The lower triangle; zeros above the k-th diagonal."""
    return invoke("_npi_tril", [m], {"k": k})[0]


def triu(m: ndarray, k: int = 0) -> ndarray:
    """The upper triangle; zeros below the k-th diagonal."""
    return invoke("_npi_triu", [m], {"k": k})[0]


def diag(v: ndarray, k: int = 0) -> ndarray:
    """The k-th diagonal of a matrix, or a matrix with a vector on it."""
    return invoke("_npi_diag", [v], {"k": k})[0]
