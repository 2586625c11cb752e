"""onnxruntime's interface over Baton's libraries: a script that changes its import runs on Baton.

    from compiler import ort

    session = ort.InferenceSession("model.onnx")
    scores, = session.run(None, {"data": image})

Operators that Baton can't build run in onnxruntime, where it is installed; `session.parts` says
which. docs/onnxruntime_scripts.md says what differs, and docs/onnxruntime_names.md has the state of
each name.
"""

from typing import Any

from ..support.lazy_import import by_module, lazy_attributes

__version__ = version = "1.32.0"
"""Version of onnxruntime whose names these are; `compiler.__version__` is Baton's."""


def _rejected(name: str) -> Any:
    from .names import missing_name

    raise missing_name(f"onnxruntime.{name}")


_WHERE = {
    ".options": """ExecutionMode ExecutionOrder GraphOptimizationLevel RunOptions SessionOptions
        disable_telemetry_events enable_telemetry_events get_all_providers get_available_providers
        get_build_info get_device get_version_string has_collective_ops preload_dlls
        set_default_logger_severity set_default_logger_verbosity set_seed""",
    ".values": "IOBinding OrtDevice OrtValue SessionIOBinding",
    ".described": "ModelMetadata NodeArg",
    ".session": "InferenceSession",
    ".parts": "Part",
    ".capi": "capi",
}
__getattr__ = lazy_attributes(__name__, by_module(_WHERE), _rejected)
