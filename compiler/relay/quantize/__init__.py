"""`relay.quantize`: quantize float networks to int8, step by step or in one call."""

from .config import QConfig, current_qconfig, qconfig
from .passes import annotate, calibrate, prerequisite_optimize, quantize, realize
