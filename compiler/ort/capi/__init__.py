"""`onnxruntime.capi`, from which scripts import the exceptions."""

from . import onnxruntime_pybind11_state as onnxruntime_pybind11_state
