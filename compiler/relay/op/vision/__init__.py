"""`relay.vision`: anchors, box decoding and suppression, pooling of regions."""

from ..registry import builders_of

__getattr__, __dir__ = builders_of("vision")
