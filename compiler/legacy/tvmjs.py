"""`tvm.contrib.tvmjs`: files of parameters were caches of ndarrays."""

import sys

from .patches import Patches


def patch(patches: Patches) -> None:
    """Add the old names."""
    module = sys.modules["tvm.contrib.tvmjs"]
    patches.add(module, "dump_ndarray_cache", module.dump_tensor_cache)
    patches.add(module, "load_ndarray_cache", module.load_tensor_cache)
