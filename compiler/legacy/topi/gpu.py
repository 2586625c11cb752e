"""`tvm.topi.gpu`: TVM's computes for GPUs are there, its schedules of TE are added."""

import sys

from ..patches import Patches
from . import names_of


def patch(patches: Patches) -> None:
    """Let the module name schedules, and computes of TOPI's."""
    module = sys.modules["tvm.topi.gpu"]
    patches.add(module, "__getattr__", names_of("tvm.topi.gpu", gpu=True))
