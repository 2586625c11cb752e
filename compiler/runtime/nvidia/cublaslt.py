"""Products in cuBLASLt: act(a @ b + bias), of single matrices or of a stack of them.

cuBLASLt's matrices go down the columns. A row-major (m, n) result is the same memory as its (n, m)
transpose down the columns, so the second factor is cuBLASLt's A, and the bias, one number for each
of its rows, is one for each column of the result.
"""

from __future__ import annotations

import ctypes
import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from compiler.errors import LoadError

from . import FILES, PACKAGES
from .library import Library, PerDevice, pointer, stream

# Of library_types.h and cublas_api.h.
_TYPES = {"float32": 0, "float16": 2, "bfloat16": 14, "int8": 3, "int32": 10}
_COMPUTE = {"float32": 68, "tf32": 77, "int32": 72}
# Of cublasLt.h.
_SCALE_TYPE = {"float32": 0, "tf32": 0, "int32": 10}
_TRANSA, _TRANSB, _EPILOGUE, _BIAS_POINTER, _BIAS_TYPE = 3, 4, 7, 8, 26
_BATCH_COUNT, _BATCH_STRIDE = 5, 6
_WORKSPACE_BYTES, _ALIGNMENTS = 1, (5, 6, 7, 8)
_DEFAULT, _RELU, _BIAS = 1, 2, 4
_MAX_ALIGNMENT = 256


@dataclass(frozen=True)
class Factor:
    """One factor of a product."""

    at: int  # which of the subgraph's inputs it is
    transposed: bool  # whether it lies in memory with its rows and columns exchanged
    batch: int  # how many matrices there are: 1, or as many as in the product


@dataclass(frozen=True)
class Product:
    """A product: (m, k) by (k, n), `batch` times."""

    batch: int
    m: int
    n: int
    k: int
    a: Factor
    b: Factor
    dtype: str  # dtype, out_dtype: of the factors, and of bias and result
    out_dtype: str
    # What is summed up: "float32", "tf32" (float32 of which 10 bits are multiplied), "int32"
    compute: str
    bias: int | None = None  # which input has the n numbers that are added to each row
    relu: bool = False

    @staticmethod
    def from_json(text: str) -> Product:
        """The product that was written as a JSON dict of its fields."""
        fields = json.loads(text)
        return Product(**{**fields, "a": Factor(**fields["a"]), "b": Factor(**fields["b"])})


class _Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


@cache
def _library() -> Library:
    return Library("cuBLASLt", FILES["cublaslt"], PACKAGES["cublaslt"], "cublasLtGetStatusString")


@cache
def _handles() -> PerDevice:
    return PerDevice(lambda: _library().created("cublasLtCreate"))


class CublasLt:
    """Computes one product; the last output is the memory that cuBLASLt may work in."""

    def __init__(self, product: Product) -> None:
        self._product = product
        self._library = _library()
        self._description = self._describe()
        self._layouts = self._lay_out()
        number = ctypes.c_int32 if product.compute == "int32" else ctypes.c_float
        self._one, self._zero = number(1), number(0)
        self._chosen: dict[tuple[int, tuple[int, ...]], _Heuristic] = {}
        self._lock = threading.Lock()  # the description has the bias of one call

    def __call__(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        product = self._product
        result, workspace = outputs
        handle = _handles().of(result)
        a, b = pointer(inputs[product.b.at]), pointer(inputs[product.a.at])
        d = pointer(result)
        size = ctypes.c_size_t(int(workspace.shape[0]))
        with self._lock:
            if product.bias is not None:
                self._set(_BIAS_POINTER, pointer(inputs[product.bias]))
            found = self._algorithm(handle, int(result.device.index), (a, b, d), size)
            self._library.call(
                "cublasLtMatmul",
                *(handle, self._description, ctypes.byref(self._one)),
                *(a, self._layouts[0], b, self._layouts[1], ctypes.byref(self._zero)),
                *(d, self._layouts[2], d, self._layouts[2]),
                *(ctypes.byref(found.algorithm), pointer(workspace), size, stream(result)),
            )

    def _describe(self) -> ctypes.c_void_p:
        product = self._product
        compute = (_COMPUTE[product.compute], _SCALE_TYPE[product.compute])
        self._description = self._library.created("cublasLtMatmulDescCreate", *compute)
        # Row-major, `b` is (k, n), down the columns it is (n, k), which is what A should be.
        self._set(_TRANSA, ctypes.c_int32(product.b.transposed))
        self._set(_TRANSB, ctypes.c_int32(product.a.transposed))
        epilogue = (_RELU if product.relu else 0) | (_BIAS if product.bias is not None else 0)
        self._set(_EPILOGUE, ctypes.c_uint32(epilogue or _DEFAULT))
        if product.bias is not None:
            self._set(_BIAS_TYPE, ctypes.c_int32(_TYPES[product.out_dtype]))
        return self._description

    def _set(self, attribute: int, value: Any) -> None:
        size = ctypes.c_size_t(ctypes.sizeof(value))
        arguments = (self._description, attribute, ctypes.byref(value), size)
        self._library.call("cublasLtMatmulDescSetAttribute", *arguments)

    def _lay_out(self) -> tuple[ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]:
        """The layouts of cuBLASLt's A, B and D."""
        product = self._product
        b = (product.n, product.k) if not product.b.transposed else (product.k, product.n)
        a = (product.k, product.m) if not product.a.transposed else (product.m, product.k)
        return (
            self._layout(product.dtype, *b, product.b.batch),
            self._layout(product.dtype, *a, product.a.batch),
            self._layout(product.out_dtype, product.n, product.m, product.batch),
        )

    def _layout(self, dtype: str, rows: int, columns: int, batch: int) -> ctypes.c_void_p:
        sizes = (ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(rows))
        layout = self._library.created("cublasLtMatrixLayoutCreate", _TYPES[dtype], *sizes)
        stride = rows * columns if batch > 1 else 0  # one matrix is every product's
        for attribute, value in (
            (_BATCH_COUNT, ctypes.c_int32(self._product.batch)),
            (_BATCH_STRIDE, ctypes.c_int64(stride)),
        ):
            size = ctypes.c_size_t(ctypes.sizeof(value))
            arguments = (layout, attribute, ctypes.byref(value), size)
            self._library.call("cublasLtMatrixLayoutSetAttribute", *arguments)
        return layout

    def _algorithm(
        self, handle: Any, device: int, pointers: Sequence[ctypes.c_void_p], size: ctypes.c_size_t
    ) -> _Heuristic:
        """Best algorithm according to cuBLASLt for a device and tensors aligned like these."""
        a, b, d = (_alignment(each) for each in pointers)
        key = (device, (a, b, d))
        if key not in self._chosen:
            preference = self._library.created("cublasLtMatmulPreferenceCreate")
            wanted: list[tuple[int, Any]] = [(_WORKSPACE_BYTES, ctypes.c_uint64(size.value))]
            wanted += [(each, ctypes.c_uint32(n)) for each, n in zip(_ALIGNMENTS, (a, b, d, d))]
            for attribute, value in wanted:
                arguments = (preference, attribute, ctypes.byref(value))
                nbytes = ctypes.c_size_t(ctypes.sizeof(value))
                self._library.call("cublasLtMatmulPreferenceSetAttribute", *arguments, nbytes)
            best, count = _Heuristic(), ctypes.c_int()
            layouts = (*self._layouts, self._layouts[2])
            self._library.call(
                "cublasLtMatmulAlgoGetHeuristic",
                *(handle, self._description, *layouts, preference, 1),
                *(ctypes.byref(best), ctypes.byref(count)),
            )
            self._library.call("cublasLtMatmulPreferenceDestroy", preference)
            if not count.value:
                raise LoadError(f"cuBLASLt has no algorithm on this GPU for {self._product}")
            self._chosen[key] = best
        return self._chosen[key]


def _alignment(address: ctypes.c_void_p) -> int:
    """The greatest power of two up to 256 that divides an address."""
    value = (address.value or 0) | _MAX_ALIGNMENT
    return value & -value


def load(code: bytes) -> CublasLt:
    """Engine of a matmul that is described in JSON."""
    return CublasLt(Product.from_json(code.decode()))
