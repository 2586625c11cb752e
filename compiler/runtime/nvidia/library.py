"""One of NVIDIA's libraries, called through ctypes."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

from compiler.errors import LoadError
from compiler.runtime import cuda_files


class Library:
    """A shared library whose functions return 0, or the code of an error.

    `title`: for errors: "cuBLASLt". `file`: "libcublasLt.so.13". `package`: pip's package with it.
    `status_text`: its function that turns an error's code into text.
    Raises LoadError: the library is not installed, or can't be loaded.
    """

    def __init__(self, title: str, file: str, package: str, status_text: str) -> None:
        self.title = title
        try:
            self._functions = ctypes.CDLL(cuda_files.library(file) or file)
        except OSError as error:
            raise LoadError(
                f"a subgraph runs in {title}, and {file} can't be loaded ({error}): "
                f"pip install '{package}', or set CUDA_PATH to a CUDA toolkit that has it"
            ) from error
        self._text = getattr(self._functions, status_text)
        self._text.restype = ctypes.c_char_p

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function; integers among the arguments are C's int.

        Raises LoadError: it returned an error.
        """
        status = getattr(self._functions, name)(*arguments)
        if status:
            text = self._text(status).decode()
            raise LoadError(f"{self.title}: {name} failed: {text} ({status})")

    def created(self, name: str, *arguments: Any) -> ctypes.c_void_p:
        """Return the object that a function creates through its first argument, an address."""
        handle = ctypes.c_void_p()
        self.call(name, ctypes.byref(handle), *arguments)
        return handle


class PerDevice:
    """Something of a library's for each GPU, made when it is first asked for.

    `make`: called while the GPU is CUDA's current one.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._made: dict[int, Any] = {}
        self._lock = threading.Lock()

    def of(self, tensor: Any) -> Any:
        """That of a tensor's GPU."""
        index = int(tensor.device.index)
        with self._lock:
            if index not in self._made:
                self._made[index] = self._make()
            return self._made[index]


def pointer(tensor: Any) -> ctypes.c_void_p:
    """Where a tensor's elements begin."""
    return ctypes.c_void_p(tensor.data_ptr())


def stream(tensor: Any) -> ctypes.c_void_p:
    """The stream on which TVM launches kernels for the tensor's GPU at the moment."""
    import tvm_ffi

    return ctypes.c_void_p(tvm_ffi.get_raw_stream(tensor.device))
