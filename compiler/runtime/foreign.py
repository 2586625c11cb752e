"""Subgraphs that something other than TVM runs: the code travels in the library.

The build driver turns such a subgraph into one call of the packed function `RUN`. Its first
argument is a tensor of bytes, one of the weights: a header that names the runtime, and the code.
The runtime makes a callable from the code when it is called first. `RUN_ON_CUDA` does the same for
code that works on the tensors of a GPU; its first argument is text, which is on no device.
"""

from __future__ import annotations

import base64
import functools
import itertools
import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler.errors import BuildError, InputError, LibraryOperatorError, LoadError, PartitionError

RUN = "baton.foreign.run"
"""Name of the packed function: (code, inputs..., outputs...)."""

RUN_ON_CUDA = "baton.foreign.cuda"
"""`RUN` for tensors of a GPU: (code as text, inputs..., outputs..., workspace if any)."""

IN_PROCESS = "python"
"""The runtime of Python callables, which live in the process that built the library."""

Runnable = Callable[..., "np.ndarray | Sequence[np.ndarray]"]
"""Called with numpy arrays in input order; must not keep references to them."""

Engine = Callable[[Sequence[Any], Sequence[Any]], None]
"""Called with input and output tensors; computes the outputs in place."""


@dataclass(frozen=True)
class ExternalCode:
    """Code for a runtime."""

    runtime: str  # "onnxruntime", or a name given to `register_runtime`
    code: bytes
    library: str = ""  # file that brings the runtime, for an error where it is not there
    # Bytes of scratch memory on a GPU, passed as one more output after the others
    workspace: int = 0

    def pack(self, inputs: int) -> bytes:
        """Serialize for a library: the length of a header, the header, the code."""
        # Large enough to be one of the weights, which are not copied on each call.
        header = {"runtime": self.runtime, "inputs": inputs, "library": self.library}
        return with_header(header, self.code)

    def pack_text(self, inputs: int) -> str:
        """Serialize as `pack` does, to base64 text."""
        return base64.b64encode(self.pack(inputs)).decode()


def unpack(data: bytes) -> tuple[ExternalCode, int]:
    """The code and its number of inputs; raises LoadError if the bytes are damaged."""
    header, code = split_header(data)
    try:
        library = str(header.get("library", ""))
        return ExternalCode(str(header["runtime"]), code, library), int(header["inputs"])
    except (ValueError, KeyError, TypeError) as error:
        raise LoadError(_DAMAGED) from error


def with_header(header: Mapping[str, Any], data: bytes) -> bytes:
    """The length of a JSON text, the text, and bytes after it."""
    text = json.dumps(dict(header)).ljust(128).encode()
    return len(text).to_bytes(8, "little") + text + data


def split_header(data: bytes) -> tuple[dict[str, Any], bytes]:
    """Undo `with_header`; raises LoadError if the bytes are damaged."""
    size = int.from_bytes(data[:8], "little")
    try:
        header = json.loads(data[8 : 8 + size])
    except ValueError as error:
        raise LoadError(_DAMAGED) from error
    if not isinstance(header, dict):
        raise LoadError(_DAMAGED)
    return header, data[8 + size :]


_DAMAGED = "the code of a foreign subgraph is damaged; build again"


_runtimes: dict[str, tuple[str, Callable[[bytes], Engine]]] = {}
_callables: dict[int, Runnable] = {}
_numbers = itertools.count(1)
_lock = threading.Lock()


def register_runtime(name: str, load: Callable[[bytes], Runnable]) -> None:
    """Make a runtime known: `load` turns code into a callable of numpy arrays.

    See `register_engine`.
    """
    register_engine(name, lambda code: _copying(load(code)), str(getattr(load, "__module__", "")))


def register_engine(name: str, load: Callable[[bytes], Engine], owner: str = "") -> None:
    """Make a runtime known: `load` turns code into a function that fills tensors.

    `name`: libraries that were built for it find it by this name. `owner`: who may register the
    name again; by default the module that defines `load`.
    Raises PartitionError: another owner has the name: libraries that were built for its runtime
    would run in this one.
    """
    register_engines({name: load}, owner or str(getattr(load, "__module__", "")))


def register_engines(engines: Mapping[str, Callable[[bytes], Engine]], owner: str) -> None:
    """Make several runtimes known, all or none; see `register_engine`."""
    with _lock:
        for name in engines:
            known, _ = _runtimes.get(name, (owner, None))
            if known != owner:
                raise PartitionError(
                    f"{owner}: the runtime {name!r} is already registered by {known}; give it "
                    "another name"
                )
        _runtimes.update((name, (owner, load)) for name, load in engines.items())


def in_process(function: Runnable) -> ExternalCode:
    """Code that refers to a Python callable of this process, which is kept from then on."""
    with _lock:
        number = next(_numbers)
        _callables[number] = function
    return ExternalCode(IN_PROCESS, str(number).encode())


def load(code: ExternalCode) -> Engine:
    """Create the engine that runs some code.

    Raises LoadError: the runtime is unknown or not installed, or the code is of another process.
    """
    if code.runtime == IN_PROCESS:
        found = _callables.get(int(code.code)) if code.code.isdigit() else None
        if found is None:
            raise LoadError("a subgraph was compiled to a Python function of another process")
        return _copying(found)
    with _lock:
        _, make = _runtimes.get(code.runtime, ("", None))
    if make is None:
        known = ", ".join(sorted(_runtimes)) or "none"
        library = code.library or "the partitioner library that brings it"
        raise LoadError(
            f"a subgraph needs the runtime {code.runtime!r}, which is not registered; load "
            f"{library} with compiler.runtime.load_engines first, or --plugin; registered: {known}"
        )
    return make(code.code)


def _load_onnxruntime(code: bytes) -> Runnable:
    try:
        import onnxruntime
    except ImportError as error:
        raise LoadError(
            "a subgraph runs in onnxruntime, which is not installed: pip install onnxruntime"
        ) from error
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    threads = os.environ.get("TVM_NUM_THREADS", "")
    if threads.isdecimal() and int(threads):
        options.intra_op_num_threads = int(threads)
    session = onnxruntime.InferenceSession(code, options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    return lambda *inputs: session.run(None, dict(zip(names, inputs, strict=True)))


register_runtime("onnxruntime", _load_onnxruntime)


def _load_included(name: str, code: bytes) -> Engine:
    from . import onednn_engine, openvino_engine
    from .nvidia import cublaslt, cudnn

    if name in ("onednn", "openvino"):
        engine = onednn_engine if name == "onednn" else openvino_engine
        return engine.load(*split_header(code))
    return cublaslt.load(code) if name == "cublaslt" else cudnn.load(code)


for _name in ("onednn", "openvino", "cublaslt", "cudnn"):
    register_engine(_name, functools.partial(_load_included, _name), __name__)


class _Loaded:
    """Callables by the text of their code, or by its memory; that is kept, so that none moves."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[Any, Engine, int]] = {}
        self._texts: dict[str, tuple[Engine, int]] = {}
        self._lock = threading.Lock()

    def of(self, tensor: Any) -> tuple[Engine, int]:
        """The engine of the code, cached, and its number of inputs."""
        view = np.from_dlpack(tensor)
        key = (view.ctypes.data, view.size)
        with self._lock:
            if key not in self._known:
                code, inputs = unpack(view.tobytes())
                self._known[key] = (tensor, load(code), inputs)
            return self._known[key][1:]

    def of_text(self, text: str) -> tuple[Engine, int]:
        """The engine of code that is text, cached, and its number of inputs."""
        with self._lock:
            if text not in self._texts:
                code, inputs = unpack(base64.b64decode(text))
                self._texts[text] = (load(code), inputs)
            return self._texts[text]


_loaded = _Loaded()


def _run(code: Any, *tensors: Any) -> None:
    """Call the code with the inputs and the outputs, which come last."""
    engine, count = _loaded.of_text(str(code)) if isinstance(code, str) else _loaded.of(code)
    inputs, outputs = tensors[:count], tensors[count:]
    # Engines reject tensors without elements, give them other shapes, or compute later runs wrong.
    if not (all(0 in each.shape for each in outputs) and any(0 in each.shape for each in inputs)):
        engine(inputs, outputs)


def _copying(runnable: Runnable) -> Engine:
    """A callable of arrays as a function that copies its results into the outputs."""

    def run(inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        found = runnable(*map(np.from_dlpack, inputs))
        results = found if isinstance(found, (tuple, list)) else [found]
        if len(results) != len(outputs):
            raise BuildError(
                f"a foreign subgraph returned {len(results)} arrays instead of {len(outputs)}"
            )
        for number, (result, output) in enumerate(zip(results, outputs)):
            array = np.asarray(result)
            shape, dtype = tuple(int(size) for size in output.shape), str(output.dtype)
            if array.shape != shape or str(array.dtype) != dtype:
                raise BuildError(
                    f"output {number} of a foreign subgraph has shape {array.shape} and dtype "
                    f"{array.dtype}; {shape} and {dtype} were promised"
                )
            np.copyto(np.from_dlpack(output), array)

    return run


def register() -> None:
    """Make `RUN` known to TVM; again is harmless."""
    import tvm_ffi

    # That it raises: TVM hands them on by these names.
    for error in (BuildError, InputError, LibraryOperatorError, LoadError):
        tvm_ffi.register_error(error)
    for name in (RUN, RUN_ON_CUDA):
        tvm_ffi.register_global_func(name, _run, override=True)
