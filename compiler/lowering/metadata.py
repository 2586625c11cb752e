"""Library metadata: inputs, outputs, requirements and origin."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tvm
from tvm import relax
from tvm.target import Target

from .. import target as targets
from ..errors import BuildError
from ..ir import dynamic_shape
from ..ir.kv_cache import kept
from ..runtime.metadata import OUTPUT_NAMES, UNKNOWN, Metadata, ParamInfo, TensorInfo
from ..version import __version__
from .codegen import device_placement
from .offloaded_functions import partition_info, subgraph_flops
from .steps import State


def describe(state: State, mod_name: str, bound_params: Sequence[str]) -> Metadata:
    """The metadata of a linked library; its report is added once complete.

    Raises BuildError: `main` has an input or result of unknown rank, or an input without a shape.
    """
    flops = subgraph_flops(state.scheduled, state.report.kernels)
    return Metadata(
        mod_name=mod_name,
        inputs=tuple(inputs_of(state.described)),
        outputs=tuple(outputs_of(state.described)),
        params=tuple(_weights(state)),
        devices=device_placement.kinds(state.targets),
        target=targets.to_cli(state.target),
        cpu_features=_cpu_features(state.targets),
        partition=partition_info(state.described, state.targets, flops),
        bound_params=tuple(bound_params),
        tvm_version=tvm.__version__,
        baton_version=__version__,
        bounds=dynamic_shape.bounds(state.described["main"]),
        kv_cache=kept(state.described["main"]),
    )


def inputs_of(mod: tvm.IRModule) -> list[TensorInfo]:
    """The parameters of `main`. Raises BuildError: one has a dimension that is no symbol."""
    names = dynamic_shape.names(mod["main"])

    def extent(name: str, dim: Any) -> str:
        if dim not in names:
            raise BuildError(
                f"{name!r} of main has the dimension {dim}; an input's is a number or a symbol"
            )
        return names[dim]

    return [_describe(var.name, var.ty, extent) for var in mod["main"].params]


def outputs_of(mod: tvm.IRModule) -> list[TensorInfo]:
    """The results of `main`, as the importer named them."""
    ty = mod["main"].ret_ty
    known = dynamic_shape.names(mod["main"])

    def extent(_: str, dim: Any) -> int | str:
        return UNKNOWN if isinstance(dim, str) else dynamic_shape.text(dim, known) or UNKNOWN

    fields = ty.fields if isinstance(ty, relax.TupleType) else [ty]
    names = list(map(str, (mod["main"].attrs or {}).get(OUTPUT_NAMES, ())))
    if len(names) != len(fields) or len(set(names)) != len(names):
        names = [f"output{index}" for index in range(len(fields))]
    return [_describe(name, field, extent) for name, field in zip(names, fields)]


def _weights(state: State) -> list[ParamInfo]:
    """Each weight with the device that it belongs on; the library lays them out."""
    kinds = device_placement.kinds(state.targets)
    return [
        ParamInfo(name, tuple(map(int, value.shape)), str(value.dtype), kinds[index])
        for (name, value), index in zip(state.weights, device_placement.weight_devices(state.mod))
    ]


def _describe(name: str, ty: Any, unknown: Callable[[str, Any], int | str]) -> TensorInfo:
    """Name, shape and dtype; `unknown` gives the extent of a dimension that is not a number."""
    if not isinstance(ty, relax.TensorType) or ty.ndim < 0:
        raise BuildError(f"{name!r} of main is {ty}; only tensors of known rank can be built")
    dims = ty.shape.values if isinstance(ty.shape, relax.ShapeExpr) else ["?"] * ty.ndim
    shape = tuple(
        int(dim) if isinstance(dim, tvm.tirx.IntImm) else unknown(name, dim) for dim in dims
    )
    return TensorInfo(name, shape, str(ty.dtype))


def _cpu_features(chosen: Mapping[str, Target]) -> tuple[str, ...]:
    hosts = [t if t.kind.name == "llvm" else t.host for t in chosen.values()]
    return tuple(sorted(set().union(*(targets.cpu_features(h) for h in hosts if h is not None))))
