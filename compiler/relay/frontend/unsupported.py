"""Importers of Relay that TVM dropped and nothing here replaces; they say what to use instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from compiler.errors import UnsupportedOperatorError

_INSTEAD = {
    "from_caffe": "convert the model to ONNX (for example with caffe2onnx) and use from_onnx",
    "from_caffe2": "export the model to ONNX from PyTorch's caffe2.python.onnx and use from_onnx",
    "from_coreml": "convert the model it was made from to ONNX and use from_onnx",
    "from_darknet": "convert cfg and weights to ONNX or PyTorch and use from_onnx or from_pytorch",
    "from_keras": (
        "convert it with tf2onnx (`tf2onnx.convert.from_keras`) and use from_onnx, or with "
        "tf.lite.TFLiteConverter and use from_tflite"
    ),
    "from_oneflow": "export it with oneflow_onnx and use from_onnx",
    "from_paddle": "export it with paddle2onnx and use from_onnx",
    "from_tensorflow": (
        "convert it with `python -m tf2onnx.convert` and use from_onnx, or with "
        "tf.lite.TFLiteConverter and use from_tflite"
    ),
}


def __getattr__(name: str) -> Any:
    if name not in _INSTEAD:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _refusing(name)


def _refusing(name: str) -> Callable[..., Any]:
    def refuse(*_args: Any, **_kwargs: Any) -> Any:
        raise UnsupportedOperatorError(
            f"relay.frontend.{name} is gone: TVM has no importer for that format; {_INSTEAD[name]}"
        )

    refuse.__name__, refuse.__doc__ = name, f"Raises UnsupportedOperatorError: {_INSTEAD[name]}."
    return refuse
