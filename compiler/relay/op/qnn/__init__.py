"""`relay.qnn.op`: operators on quantized tensors."""

import sys

from ..registry import builders_of

qnn = sys.modules[__name__]  # scripts also say `relay.qnn.op.qnn`

__getattr__, __dir__ = builders_of("qnn")
