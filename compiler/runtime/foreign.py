"""Subgraphs that something other than TVM runs: the code travels among the library's weights.

The build driver turns such a subgraph into one call of the packed function `RUN`. Its first
argument is a tensor of bytes: a header that names the runtime, and the code. The runtime makes a
callable from the code when it is called first.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler.errors import BuildError, LoadError

RUN = "baton.foreign.run"
"""Name of the packed function: (code, inputs..., outputs...)."""

IN_PROCESS = "python"
"""The runtime of Python callables, which live in the process that built the library."""

Runnable = Callable[..., "np.ndarray | Sequence[np.ndarray]"]


@dataclass(frozen=True)
class ForeignCode:
    """Code for a runtime.

    Attributes
    ----------
    runtime : str
        "onnxruntime", or a name given to `register_runtime`.
    code : bytes
    """

    runtime: str
    code: bytes

    def pack(self, inputs: int) -> bytes:
        """What a library keeps: the length of a header, the header, the code."""
        # Large enough to be one of the weights, which are not copied on each call.
        header = json.dumps({"runtime": self.runtime, "inputs": inputs}).ljust(128).encode()
        return len(header).to_bytes(8, "little") + header + self.code


def unpack(data: bytes) -> tuple[ForeignCode, int]:
    """The code and its number of inputs; raises LoadError if the bytes are damaged."""
    size = int.from_bytes(data[:8], "little")
    try:
        header = json.loads(data[8 : 8 + size])
        return ForeignCode(str(header["runtime"]), data[8 + size :]), int(header["inputs"])
    except (ValueError, KeyError, TypeError) as error:
        raise LoadError("the code of a foreign subgraph is damaged; build again") from error


_runtimes: dict[str, Callable[[bytes], Runnable]] = {}
_callables: dict[int, Runnable] = {}
_numbers = itertools.count(1)
_lock = threading.Lock()


def register_runtime(name: str, load: Callable[[bytes], Runnable]) -> None:
    """Make a runtime known: `load` turns code into a callable of numpy arrays."""
    with _lock:
        _runtimes[name] = load


def in_process(function: Runnable) -> ForeignCode:
    """Code that stands for a Python callable of this process, which is kept from then on."""
    with _lock:
        number = next(_numbers)
        _callables[number] = function
    return ForeignCode(IN_PROCESS, str(number).encode())


def load(code: ForeignCode) -> Runnable:
    """The callable of some code.

    Raises
    ------
    LoadError
        The runtime is unknown or not installed, or the code is of another process.
    """
    if code.runtime == IN_PROCESS:
        found = _callables.get(int(code.code)) if code.code.isdigit() else None
        if found is None:
            raise LoadError("a subgraph was compiled to a Python function of another process")
        return found
    with _lock:
        make = _runtimes.get(code.runtime)
    if make is None:
        known = ", ".join(sorted(_runtimes)) or "none"
        raise LoadError(
            f"a subgraph needs the runtime {code.runtime!r}, which is not registered; "
            f"registered: {known}"
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
    session = onnxruntime.InferenceSession(code, options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    return lambda *inputs: session.run(None, dict(zip(names, inputs, strict=True)))


register_runtime("onnxruntime", _load_onnxruntime)


class _Loaded:
    """Callables by the memory of their code; the tensors are kept, so that none moves."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[Any, Runnable, int]] = {}
        self._lock = threading.Lock()

    def of(self, tensor: Any) -> tuple[Runnable, int]:
        """The callable and its number of inputs."""
        view = np.from_dlpack(tensor)
        key = (view.ctypes.data, view.size)
        with self._lock:
            if key not in self._known:
                code, inputs = unpack(view.tobytes())
                self._known[key] = (tensor, load(code), inputs)
            return self._known[key][1:]


_loaded = _Loaded()


def _run(code: Any, *tensors: Any) -> None:
    """Call the code with the inputs and copy its results into the outputs, which come last."""
    runnable, count = _loaded.of(code)
    outputs = tensors[count:]
    found = runnable(*(np.from_dlpack(tensor) for tensor in tensors[:count]))
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


def register() -> None:
    """Make `RUN` known to TVM; again is harmless."""
    import tvm_ffi

    tvm_ffi.register_global_func(RUN, _run, override=True)
