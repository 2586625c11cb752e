"""Tensors of other libraries, views and arrays, in the form that kernels take.

Kernels take tensors that are contiguous, begin at a multiple of `ALIGNMENT` bytes, and have their
data pointer there, without DLPack's separate byte offset.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from compiler.errors import InputError
from compiler.runtime.metadata import ALIGNMENT, TensorInfo, dtype_bits
from compiler.tvm_workarounds.fast_import import tvm


class _DLTensor(ctypes.Structure):
    """DLPack's tensor; a managed one begins with it."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_uint32),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


# Of its own: what `ctypes.pythonapi` has is one for all, and others declare it in their way.
_pointer_of = ctypes.PYFUNCTYPE(ctypes.POINTER(_DLTensor), ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def fits_kernels(tensor: Any) -> bool:
    """Whether kernels on the tensor's device can take it as it is."""
    if tensor.data_ptr() % ALIGNMENT or not tensor.is_contiguous():
        return False
    capsule = tensor.__dlpack__()
    return _pointer_of(capsule, b"dltensor").contents.byte_offset == 0


def for_kernels(tensor: Any, device: Any) -> Any:
    """The tensor itself where kernels on `device` can take it, else a copy that they can take.

    Raises InputError: the copy would have to be made of a tensor with strides that is not in host
    memory.
    """
    if tensor.device == device and fits_kernels(tensor):
        return tensor
    return compact(tensor).copyto(device)


def compact(tensor: Any) -> Any:
    """The tensor itself where it is contiguous, else a contiguous copy; raises InputError."""
    if tensor.is_contiguous():
        return tensor
    try:
        return tvm.runtime.tensor(np.ascontiguousarray(np.from_dlpack(tensor)))
    except Exception as error:
        raise InputError(
            f"a tensor of shape {tuple(tensor.shape)} and dtype {tensor.dtype} on {tensor.device} "
            f"has strides ({tuple(tensor.strides)}) and can't be made contiguous here ({error}); "
            "make it contiguous first"
        ) from error


def copy_into(source: Any, out: Any, what: str) -> Any:
    """Copy a tensor into a caller's tensor or array, and return that.

    `source`: contiguous. `out`: of the same shape; a tensor also of the same dtype, and contiguous.
    `what`: what `source` is, for messages.
    Raises InputError: `out` does not fit.
    """
    if not isinstance(out, (np.ndarray, tvm.runtime.Tensor)):
        raise InputError(f"{what} can't be copied into {type(out).__name__}")
    if tuple(out.shape) != tuple(source.shape):
        raise InputError(f"{what} can't be copied into the shape {tuple(out.shape)}")
    if isinstance(out, np.ndarray):
        try:
            np.copyto(out, source.numpy(), casting="same_kind")
        except (TypeError, ValueError) as error:
            raise InputError(f"{what} can't be copied into the array: {error}") from error
        return out
    if str(out.dtype) != str(source.dtype):
        raise InputError(f"{what} can't be copied into the dtype {out.dtype}")
    if not out.is_contiguous():
        raise InputError(
            f"{what} can't be copied into a tensor with strides; give a contiguous one"
        )
    return source.copyto(out)


def as_array(value: Any, info: TensorInfo) -> np.ndarray:
    """A value for a tensor as an array; raises InputError."""
    try:
        return np.asarray(value)
    except Exception as error:
        raise InputError(
            f"input {info.name!r} ({info}) can't be set from {type(value).__name__}: {error}"
        ) from error


def require_dtype(value: Any, info: TensorInfo) -> None:
    """Raise InputError for a value of another dtype than the input's; lists and numbers have none.

    `value`: an array of any library.
    """
    dtype = getattr(value, "dtype", info.dtype)
    name = str(getattr(dtype, "name", dtype)).removeprefix("torch.")
    if name != info.dtype:
        raise InputError(
            f"input {info.name!r} takes {info.dtype}, and the value is {name}; no value is cast "
            f"silently: convert it, for NumPy with .astype({info.dtype!r})"
        )


def array_of(value: Any, info: TensorInfo) -> np.ndarray:
    """A value for an input as an array of its dtype, which lists and numbers become.

    Raises InputError: the value has another dtype, or numbers that the dtype can't hold.
    """
    require_dtype(value, info)
    array = as_array(value, info)
    if not hasattr(value, "dtype") and array.size:
        require_convertible(array, info)
    return array.astype(numpy_dtype(info), copy=False)


def numpy_dtype(info: TensorInfo) -> np.dtype:
    """The dtype of arrays that hold the tensor's values."""
    try:
        return np.dtype(info.dtype)
    except TypeError:
        import ml_dtypes  # has the narrow types that numpy lacks

        return np.dtype(getattr(ml_dtypes, info.dtype))


def require_convertible(array: np.ndarray, info: TensorInfo) -> None:
    """Raise when a conversion would lose more than precision."""
    if str(array.dtype) == info.dtype:
        return
    exact = info.dtype.startswith(("int", "uint", "bool"))
    allowed = "biu" if exact else "biufV"  # V: the narrow floats of ml_dtypes
    if array.dtype.kind not in allowed:
        raise InputError(
            f"input {info.name!r} has the dtype {info.dtype}, which a value of dtype "
            f"{array.dtype} can't be converted to without loss; convert it first"
        )
    if info.dtype.startswith(("int", "uint")) and array.size:
        bits, signed = dtype_bits(info.dtype), info.dtype.startswith("int")
        least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        for value in (int(array.min()), int(array.max())):
            if not least <= value <= most:
                raise InputError(
                    f"input {info.name!r} has the dtype {info.dtype}, which can't hold the value "
                    f"{value}; it holds {least} to {most}"
                )
