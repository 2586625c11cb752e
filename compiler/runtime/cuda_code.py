"""Device code inside a CUDA module's source, so that a library needs no compiler where it runs.

TVM keeps a CUDA module as source and has the callback `tvm_callback_cuda_compile` compile it
when the first kernel is launched. Baton compiles at build time and appends the result to the
source as a comment of one line; `register` makes the callback return it. Without Baton the
comment is only a comment, and TVM compiles the source as ever.
"""

from __future__ import annotations

import base64
import binascii
import functools
from typing import Any

from compiler.errors import LoadError

_MARK = "\n// baton device code: "
_CALLBACK = "tvm_callback_cuda_compile"


def attach(source: str, code: bytes) -> str:
    """CUDA source with its fatbin (or cubin, or PTX) appended."""
    return f"{source}{_MARK}{base64.b64encode(code).decode('ascii')}\n"


def without_code(source: str) -> str:
    """CUDA source without what `attach` appended."""
    return source.partition(_MARK)[0]


def extract(source: str) -> bytes | None:
    """The device code that `attach` appended; None when there is none.

    Raises
    ------
    LoadError
        The device code is damaged.
    """
    at = source.rfind(_MARK)
    if at < 0:
        return None
    try:
        return base64.b64decode(source[at + len(_MARK) :].strip(), validate=True)
    except binascii.Error as error:
        raise LoadError("the library's CUDA device code is damaged: build it again") from error


@functools.lru_cache(maxsize=1)
def register() -> None:
    """Let TVM's CUDA runtime take the device code of libraries that Baton built.

    Sources without device code go to the callback that was registered before. It is enough to
    call this once in a process, before the first kernel runs.

    Raises
    ------
    LoadError
        At the first launch, when there is neither device code nor a compiler for the source.
    """
    import tvm  # noqa: F401  registers TVM's own callback, which must come first
    import tvm_ffi

    before = tvm_ffi.get_global_func(_CALLBACK, allow_missing=True)

    def extract_or_compile(source: str) -> Any:
        code = extract(source)
        if code is not None:
            return code
        if before is None:
            raise LoadError("the library has CUDA source but no device code, and no compiler")
        return before(source)

    tvm_ffi.register_global_func(_CALLBACK, extract_or_compile, override=True)
