"""Requests to a library that was built with `mxnet/lib_api.h`: the Python side of its one function.

`baton/mxnet_library.h` lists the requests.
"""

from __future__ import annotations

import ctypes
import json
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

ABI_VERSION = 1
"""Required value of `BATON_MXNET_ABI_VERSION` in the header."""

DTYPES = (
    *("float32", "float64", "float16", "uint8", "int32", "int8", "int64", "bool"),
    *("int16", "uint16", "uint32", "uint64", "bfloat16"),
)
"""Dtype names by MXNet's codes."""


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
    )


_Reply = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t)


class MxnetRequests:
    """Calls one library. Several threads may."""

    def __init__(self, symbols: ctypes.CDLL) -> None:
        self._function = symbols.baton_mxnet_call
        self._function.restype = None
        self._function.argtypes = (
            *(ctypes.c_char_p, ctypes.c_size_t, ctypes.POINTER(_Tensor)),
            _Reply,
        )

    def __call__(
        self, name: str, *arguments: Any, read: Callable[[Any], None] | None = None
    ) -> Any:
        """Send a request; arrays and tensors among the arguments share their memory with it.

        `read` gets the result while the arrays are valid that it has addresses of.
        Raises RuntimeError with the library's message.
        """
        tensors: list[_Tensor] = []
        kept: list[Any] = []

        def number(value: Any) -> int:
            tensors.append(_tensor(value, kept))
            return len(tensors) - 1

        text = json.dumps([name, *arguments], default=number, ensure_ascii=False)
        found: list[Any] = []

        def reply(address: int, size: int) -> None:
            try:
                said = ctypes.string_at(address, size).decode(errors="replace")
                found[:] = json.loads(said, strict=False)
                if read is not None and found[0]:
                    read(found[1])
            except Exception as error:
                found[:] = [False, f"its reply can't be read: {error}"]

        request = text.encode(errors="surrogatepass")
        table = (_Tensor * max(len(tensors), 1))(*tensors)
        self._function(request, len(request), table, _Reply(reply))
        done, result = found
        if not done:
            raise RuntimeError(result)
        return result

    def engine(
        self, operator: int, attrs: Mapping[str, str], shapes: Sequence[Any], dtypes: Sequence[str]
    ) -> Callable[[Sequence[Any], Sequence[Any]], None]:
        """One use of an operator, on tensors of the CPU; its state is freed with the function."""
        address = self("engine", operator, dict(attrs), shapes, [code(each) for each in dtypes])

        def run(inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            self("run", address, list(inputs), list(outputs))

        weakref.finalize(run, partial(self, "free_engine", address))
        return run

    def selector(self, partitioner: int, strategy: int, graph: str, options: Any) -> list[Any]:
        """The methods of a new selector, which is freed with the first of them."""
        address = self("selector", partitioner, strategy, graph, options)
        names = ("select", "select_input", "select_output", "filter", "reset")
        methods = [partial(self, name, address) for name in names]
        weakref.finalize(methods[0], partial(self, "free_selector", address))
        return methods


def code(dtype: str) -> int:
    """MXNet's code of a dtype. Raises TypeError: it has none."""
    if dtype not in DTYPES:
        raise TypeError(f"MXNet has no type for {dtype}")
    return DTYPES.index(dtype)


def _tensor(value: Any, kept: list[Any]) -> _Tensor:
    """The memory of an array or a tensor; `kept` owns what it points to."""
    if not isinstance(value, np.ndarray):
        dtype = str(value.dtype)
        shape = [int(extent) for extent in value.shape]
        address = value.data_ptr() if dtype == "bfloat16" else np.from_dlpack(value).ctypes.data
    else:
        array = np.asarray(value, order="C")
        kept.append(array)
        dtype, shape, address = str(array.dtype), list(array.shape), array.ctypes.data
    extents = (ctypes.c_int64 * max(len(shape), 1))(*shape)
    kept.append(extents)
    return _Tensor(address, extents, len(shape), code(dtype))
