"""`autotvm.task.space`: configs and their spaces, as scripts import them."""

from schedules.config import (
    AnnotateEntity,
    ConfigEntity,
    InstantiationError,
    OtherOptionEntity,
    ReorderEntity,
    SplitEntity,
)
from schedules.space import ConfigSpace, VirtualAxis

__all__ = [
    "AnnotateEntity",
    "ConfigEntity",
    "ConfigSpace",
    "InstantiationError",
    "OtherOptionEntity",
    "ReorderEntity",
    "SplitEntity",
    "VirtualAxis",
]
