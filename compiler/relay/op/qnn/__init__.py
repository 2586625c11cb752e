"""`relay.qnn.op`: quantized operators."""

import sys

from ..registry import builders_of

qnn = sys.modules[__name__]  # also accessible as `relay.qnn.op.qnn`

__getattr__, __dir__ = builders_of("qnn")
