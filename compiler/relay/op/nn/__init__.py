"""`relay.nn`: neural network operators, one family per file."""

from ..registry import builders_of

__getattr__, __dir__ = builders_of("nn")
