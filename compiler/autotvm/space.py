"""`autotvm.task.space`: configs and their spaces, as scripts import them."""

from schedules.config import AnnotateEntity as AnnotateEntity
from schedules.config import ConfigEntity as ConfigEntity
from schedules.config import InstantiationError as InstantiationError
from schedules.config import OtherOptionEntity as OtherOptionEntity
from schedules.config import ReorderEntity as ReorderEntity
from schedules.config import SplitEntity as SplitEntity
from schedules.fallback_config import FallbackConfigEntity as FallbackConfigEntity
from schedules.space import ConfigSpace as ConfigSpace
from schedules.space import VirtualAxis as VirtualAxis
