"""Names of `tvm.topi` that have another name today, or none."""

import sys

from ..patches import Patches
from . import arguments, old_semantics, restored


def patch(patches: Patches) -> None:
    """Add them."""
    module = sys.modules["tvm.topi"]
    arguments.patch(patches)
    old_semantics.patch(patches)
    restored.patch(patches, module)
