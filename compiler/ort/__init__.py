"""onnxruntime's interface over Baton's libraries: a script that changes its import runs on Baton.

    from compiler import ort

    session = ort.InferenceSession("model.onnx")
    scores, = session.run(None, {"data": image})

Operators that Baton can't build run in onnxruntime, where it is installed; `session.parts` says
which. docs/onnxruntime_scripts.md says what differs.
"""

from ..support.lazy_import import lazy_attributes

__getattr__ = lazy_attributes(
    __name__,
    {
        **{
            name: ".options"
            for name in (
                "ExecutionMode",
                "GraphOptimizationLevel",
                "RunOptions",
                "SessionOptions",
                "get_available_providers",
                "get_device",
                "set_default_logger_severity",
            )
        },
        **{name: ".values" for name in ("IOBinding", "OrtValue")},
        **{name: ".described" for name in ("ModelMetadata", "NodeArg")},
        "InferenceSession": ".session",
        "Part": ".parts",
    },
)
