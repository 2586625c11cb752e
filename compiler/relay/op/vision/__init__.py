"""`relay.vision`: anchors, box decoding, non-maximum suppression, region pooling."""

from ..registry import builders_of

__getattr__, __dir__ = builders_of("vision")
