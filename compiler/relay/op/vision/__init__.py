"""`relay.vision`: anchors, box decoding and suppression, pooling of regions."""

from .boxes import multibox_prior, multibox_transform_loc, yolo_reorg
from .regions import proposal, roi_align, roi_pool
from .suppression import (
    all_class_non_max_suppression,
    get_valid_counts,
    non_max_suppression,
    regular_non_max_suppression,
)

__all__ = [
    "all_class_non_max_suppression",
    "get_valid_counts",
    "multibox_prior",
    "multibox_transform_loc",
    "non_max_suppression",
    "proposal",
    "regular_non_max_suppression",
    "roi_align",
    "roi_pool",
    "yolo_reorg",
]
