"""Link scheduled kernels and the Relax functions that call them into one VM executable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import tvm
from tvm import relax
from tvm.target import Target

from ...errors import BatonError, BuildError
from ...target.nvcc import device_code
from ..cache.kernel_cache import user_cache
from ..kernel_passes.custom_lower_passes import run_custom_lower_passes
from ..kernel_passes.pipeline import PIPELINE
from . import bulk_segments, compile_kernels, cuda_graph, device_placement, static_allocation
from .concat_in_place import ConcatInPlace
from .elide_argument_checks import MarkInternalTensors
from .loops import ExpandLoops
from .memory_planner import PackStorage, storage_bytes
from .plan_devices import PlanDevices, has_conditions
from .reshape_to_view import ReshapesAsViews


@dataclass(frozen=True)
class Linked:
    """An executable, and the parts from which `assemble` can rebuild it."""

    executable: relax.VMExecutable
    lowered: tvm.IRModule  # lowered Relax functions, and the kernels that are not object code yet
    kernels: compile_kernels.CompiledKernels
    dropped: Counter[str] = field(default_factory=Counter)  # saved calls per inference, by kernel

    @property
    def activations_bytes(self) -> tuple[int, int]:
        """Bytes of one inference's storages, and the number of storages of dynamic size."""
        return storage_bytes(
            self.lowered,
            but=(static_allocation.ENTRY, static_allocation.WORKSPACE, *cuda_graph.FUNCTIONS),
        )


def link(mod: tvm.IRModule, target: Target, has_graph: bool = False) -> Linked:
    """Plan memory, generate code and link.

    Each CPU kernel becomes separate object code (see `codegen`). Without a C++ compiler to link it,
    TVM compiles all kernels as one LLVM module, which runs in memory without a linker. With
    `has_graph` the module gets the entry of `cuda_graph`, and must have no obstacle to it.

    Raises BuildError: TVM's code generator rejected a kernel. Raises UnavailableTargetError: a
    kernel is for CUDA and there is no nvcc for its architecture.
    """
    size = None if static_allocation.wanted() else bulk_segments.wanted()
    if size is not None:
        mod = bulk_segments.split(mod, size)
    if has_graph:
        mod = cuda_graph.with_graph_entry(mod, target)
    in_place, views = ConcatInPlace(), ReshapesAsViews()
    one_device = len((mod.global_infos or {}).get("vdevice", [])) <= 1
    for_cpu = one_device and target.kind.name == "llvm" and not has_conditions(mod)
    lower = tvm.transform.Sequential(
        [
            views,
            relax.transform.ToNonDataflow(),
            relax.transform.RemovePurityChecking(),
            relax.transform.CallTIRRewrite(),
            *([in_place] if for_cpu else []),
            PlanDevices(),
            *([PackStorage()] if for_cpu or not one_device else []),
            *([static_allocation.StaticAllocation()] if static_allocation.wanted() else []),
            *([cuda_graph.CaptureGraphEntry()] if has_graph else []),
            *([MarkInternalTensors()] if for_cpu else []),
            ExpandLoops(target),
            relax.transform.LowerAllocTensor(),
            relax.transform.KillAfterLastUse(),
            relax.transform.LowerRuntimeBuiltin(),
            relax.transform.ComputePrimValue(),
            relax.transform.VMShapeLower(),
            relax.transform.AttachGlobalSymbol(),
        ]
    )
    failed = f"TVM could not generate code for {target.kind.name}"
    try:
        with target:
            lowered = lower(mod)
    except BatonError:
        raise
    except Exception as error:
        raise BuildError(f"{failed}: {error}") from error
    with target:
        lowered = run_custom_lower_passes(lowered)  # whose errors are the caller's
    try:
        with target, device_code(user_cache()):
            kernels = compile_kernels.CompiledKernels({}, {}, 0)
            if compile_kernels.has_linker():
                lowered, kernels = compile_kernels.compile_cpu_kernels(
                    lowered, target, user_cache()
                )
            else:
                lowered = compile_kernels.separate_raising_kernels(lowered, target)
                lowered = device_placement.separate_cpus(target)(lowered)
            executable = assemble(lowered, kernels.code, target)
            return Linked(executable, lowered, kernels, in_place.dropped + views.dropped)
    except BatonError:
        raise
    except Exception as error:
        raise BuildError(f"{failed}: {error}") from error


def assemble(
    lowered: tvm.IRModule, code: Mapping[str, bytes], target: Target
) -> relax.VMExecutable:
    """Generate the virtual machine's code, and that of the kernels that are not object code yet."""
    return relax.build(
        compile_kernels.with_object_code(lowered, code),
        target,
        relax_pipeline=None,
        tir_pipeline=PIPELINE,
    )
