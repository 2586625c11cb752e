"""Device code inside a CUDA module's source, so that a library needs no compiler where it runs.

TVM makes a CUDA module of source. Where its CUDA runtime is loaded, it has the callback
`tvm_callback_cuda_compile` compile the source at once, in a build as when a library is loaded;
where not, the source is all there is. TVM's own callback requires extra packages. Baton
compiles the source before either and appends the result to it as a comment of one line; `register`
makes the callback return that. Without Baton the comment is only a comment, and TVM compiles the
source as ever.
"""

from __future__ import annotations

import base64
import binascii
import threading
from typing import Any

from compiler.errors import LoadError

_MARK = "\n// baton device code: "
_CALLBACK = "tvm_callback_cuda_compile"
_lock = threading.Lock()
_registered: list[Any] = []  # the callback of Baton's that was registered last


def attach(source: str, code: bytes) -> str:
    """CUDA source with its fatbin (or cubin, or PTX) appended."""
    return f"{source}{_MARK}{base64.b64encode(code).decode('ascii')}\n"


def without_code(source: str) -> str:
    """CUDA source without what `attach` appended."""
    return source.partition(_MARK)[0]


def extract(source: str) -> bytes | None:
    """The device code that `attach` appended; None when there is none.

    Raises LoadError: the device code is damaged.
    """
    at = source.rfind(_MARK)
    if at < 0:
        return None
    try:
        return base64.b64decode(source[at + len(_MARK) :].strip(), validate=True)
    except binascii.Error as error:
        raise LoadError("the library's CUDA device code is damaged: build it again") from error


def register() -> None:
    """Let TVM take the device code of modules that Baton compiled.

    Sources without device code go to the callback that is registered now: TVM's own, or one that
    somebody put in its place. Call this before a CUDA module is built or loaded; it does something
    only where another callback than Baton's is registered.

    Raises LoadError: from the callback, when there is neither device code nor a compiler for the
    source.
    """
    import tvm  # noqa: F401  registers TVM's own callback, which must come first
    import tvm_ffi

    with _lock:
        before = tvm_ffi.get_global_func(_CALLBACK, allow_missing=True)
        if before is not None and any(before.same_as(ours) for ours in _registered):
            return

        def extract_or_compile(source: str) -> Any:
            code = extract(source)
            if code is not None:
                return code
            if before is None:
                raise LoadError("the library has CUDA source but no device code, and no compiler")
            return before(source)

        tvm_ffi.register_global_func(_CALLBACK, extract_or_compile, override=True)
        _registered[:] = [tvm_ffi.get_global_func(_CALLBACK)]
