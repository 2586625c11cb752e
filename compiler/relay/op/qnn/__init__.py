"""`relay.qnn.op`: operators on quantized tensors."""

from ..registry import builders_of

__getattr__, __dir__ = builders_of("qnn")
