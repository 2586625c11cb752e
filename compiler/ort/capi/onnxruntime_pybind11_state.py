"""onnxruntime's exceptions: classes of `compiler.errors`, or subclasses of them.

`Fail` and `RuntimeException` catch each error that Baton raises on purpose.
"""

from __future__ import annotations

from typing import Any

from compiler.errors import BatonError, FrontendError, InputError, UnsupportedOperatorError

Fail = RuntimeException = BatonError
InvalidArgument = InputError
InvalidGraph = FrontendError
NotImplemented = UnsupportedOperatorError


class NoSuchFile(FrontendError):
    """The model file does not exist."""


class InvalidProtobuf(FrontendError):
    """The model is not an ONNX model, or is damaged."""


class NeverRaised(BatonError):
    """An error of onnxruntime that Baton has no cause for."""


DeviceReset = EPFail = EngineError = ModelLoadCanceled = ModelLoaded = NeverRaised
ModelRequiresCompilation = NoModel = NotFound = NeverRaised


def __getattr__(name: str) -> Any:
    from compiler import ort

    return getattr(ort, name)
