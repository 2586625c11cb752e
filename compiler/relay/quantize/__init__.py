"""`relay.quantize`: networks of floats as networks of bytes, in steps or at once."""

from .config import QConfig, current_qconfig, qconfig
from .passes import annotate, calibrate, prerequisite_optimize, quantize, realize

__all__ = [
    "QConfig",
    "annotate",
    "calibrate",
    "current_qconfig",
    "prerequisite_optimize",
    "qconfig",
    "quantize",
    "realize",
]
