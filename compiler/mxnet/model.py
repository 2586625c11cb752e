"""`mx.model`: checkpoints, a symbol's file and its parameters'."""

from .symbol import load_checkpoint

__all__ = ["load_checkpoint"]
