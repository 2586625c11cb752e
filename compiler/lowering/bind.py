"""Bind parameter values into `main` by name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm
from tvm import relax

from ..errors import BuildError
from ..ir.constants import static_shape, to_tensor
from ..runtime.metadata import ALIGNMENT
from .codegen.lift_constants import MIN_ELEMENTS


def bind_params(
    mod: tvm.IRModule, params: Mapping[str, Any], name: str = "main"
) -> tuple[tvm.IRModule, list[str]]:
    """Replace parameters of `main` by constants; return the module and the bound names.

    Ignores names that `main` does not have, as Relay did. Large CPU tensors of TVM's become
    constants without a copy: see `without_aliases`. Raises BuildError if there is no Relax function
    `main`, or if a value's shape or dtype is not its parameter's.
    """
    functions = [gvar.name_hint for gvar in mod.get_global_vars()]
    if name not in functions or not isinstance(mod[name], relax.Function):
        raise BuildError(f"the module has no Relax function {name!r}; it has {sorted(functions)}")
    values = {}
    for var in mod[name].params:
        if var.name not in params:
            continue
        value = params[var.name]
        array = _as_array(value)
        expected = static_shape(var)
        if expected is not None and tuple(array.shape) != expected:
            raise BuildError(
                f"parameter {var.name!r} has shape {tuple(array.shape)}, main expects {expected}"
            )
        if str(array.dtype) != str(var.ty.dtype):
            raise BuildError(
                f"parameter {var.name!r} has dtype {array.dtype}, main expects {var.ty.dtype}"
            )
        values[var.name] = value if _is_shared(value) else to_tensor(array)
    if values:
        mod = relax.transform.BindParams(name, values)(mod)
    return mod, sorted(values)


def without_aliases(
    weights: list[tuple[str, Any]], params: Mapping[str, Any]
) -> dict[str, tvm.runtime.Tensor]:
    """Copy weights of a finished library that still share memory with a bound tensor."""
    shared = {value.data_ptr() for value in params.values() if _is_shared(value)}
    return {
        name: to_tensor(_as_array(tensor)) if tensor.data_ptr() in shared else tensor
        for name, tensor in weights
    }


def _is_shared(value: Any) -> bool:
    """Whether a value becomes a constant without a copy; small ones may enter the executable."""
    return (
        isinstance(value, tvm.runtime.Tensor)
        and value.device.type == "cpu"
        and value.is_contiguous()
        and value.data_ptr() % ALIGNMENT == 0
        and math.prod(value.shape) > MIN_ELEMENTS
    )


def _as_array(value: Any) -> np.ndarray:
    """A parameter's value as an array that shares the tensor's memory if numpy supports it."""
    if isinstance(value, tvm.runtime.Tensor) and value.device.type == "cpu":
        try:
            return np.from_dlpack(value)
        except (BufferError, RuntimeError, TypeError):  # a dtype that numpy lacks
            return value.numpy()
    return value.numpy() if hasattr(value, "numpy") else np.asarray(value)
