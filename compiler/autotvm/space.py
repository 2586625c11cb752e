"""`autotvm.task.space`: configs and their spaces, as scripts import them."""

from schedules.config import (
    AnnotateEntity,
    ConfigEntity,
    InstantiationError,
    OtherOptionEntity,
    ReorderEntity,
    SplitEntity,
)
from schedules.fallback_config import FallbackConfigEntity
from schedules.space import ConfigSpace, VirtualAxis

__all__ = [
    "AnnotateEntity",
    "ConfigEntity",
    "ConfigSpace",
    "FallbackConfigEntity",
    "InstantiationError",
    "OtherOptionEntity",
    "ReorderEntity",
    "SplitEntity",
    "VirtualAxis",
]
