"""`te.hybrid.runtime`: what hybrid functions call when they run as Python."""

from .functions import EAGER, max_num_threads

__all__ = ["HYBRID_GLOBALS", "max_num_threads"]

HYBRID_GLOBALS = EAGER
