"""`tvm.nd`: arrays under their old names."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm.runtime import Tensor as NDArray
from tvm.runtime import cpu, cuda
from tvm.runtime import ext_dev as ext_dev
from tvm.runtime import metal as metal
from tvm.runtime import opencl as opencl
from tvm.runtime import rocm as rocm
from tvm.runtime import vulkan as vulkan

from .patches import Patches

gpu = cuda


def array(arr: Any, device: Any = None, mem_scope: str | None = None, ctx: Any = None) -> NDArray:
    """An array on a device, the CPU by default, holding a copy of `arr`.

    Python numbers become int64 and float64, as numpy makes them. `ctx` is `device` as TVM 0.7
    spelled it.
    """
    device = ctx if device is None else device
    if not isinstance(arr, (np.ndarray, NDArray)):
        arr = np.asarray(arr)
    return tvm.runtime.tensor(arr, device if device is not None else cpu(0), mem_scope)


def empty(
    shape: Any, dtype: str = "float32", device: Any = None, mem_scope: Any = None, ctx: Any = None
) -> NDArray:
    """Create an uninitialized array; `ctx` is `device` as TVM 0.7 spelled it."""
    device = ctx if device is None else device
    return tvm.runtime.empty(shape, dtype, device if device is not None else cpu(0), mem_scope)


def from_dlpack(ext_tensor: Any) -> NDArray:
    """Another library's array as one of TVM's, without a copy.

    Its memory may begin where kernels do not take it, which they say themselves.
    """
    return tvm_ffi.from_dlpack(ext_tensor, require_alignment=0, require_contiguous=True)


def numpyasarray(np_data: np.ndarray) -> NDArray:
    """The array's memory as a TVM array, without a copy."""
    return from_dlpack(np_data)


def patch(patches: Patches) -> None:
    """Give today's arrays the methods of old ones."""
    patches.add(NDArray, "asnumpy", lambda self: self.numpy())
    patches.add(NDArray, "to_dlpack", lambda self: self.__dlpack__())
    for name in ("ctx", "context"):
        patches.add(NDArray, name, property(lambda self: self.device))
    device = tvm.runtime.Device
    patches.add(device, "device_type", property(lambda self: int(self.dlpack_device_type())))
    patches.add(device, "device_id", property(lambda self: int(self.index)))
