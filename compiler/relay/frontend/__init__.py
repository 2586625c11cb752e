"""Importers: a model of another framework becomes a Relax module and its parameters."""

from compiler.support.lazy_import import lazy_attributes

_GONE = (
    "from_caffe from_caffe2 from_coreml from_darknet from_keras from_oneflow from_paddle "
    "from_tensorflow"
)

__getattr__ = lazy_attributes(
    __name__,
    {
        "ImportLimits": ".import_limits",
        "from_mxnet": ".mxnet",
        "from_onnx": ".onnx",
        "from_pytorch": ".torch",
        "from_tflite": ".tflite",
        **dict.fromkeys(_GONE.split(), ".unsupported"),
    },
)
