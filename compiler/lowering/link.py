"""Turns scheduled kernels and the Relax functions that call them into one VM executable."""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.target import Target

from ..errors import BatonError, BuildError
from ..target.nvcc import device_code
from . import devices


def link(mod: tvm.IRModule, target: Target) -> relax.VMExecutable:
    """Plan memory, generate code and link.

    Raises
    ------
    BuildError
        TVM's code generator refused a kernel.
    UnavailableTargetError
        A kernel is for CUDA and there is no nvcc for its architecture.
    """
    plan = [relax.transform.StaticPlanBlockMemory()] if devices.can_plan_memory(mod) else []
    finish = tvm.transform.Sequential(
        [
            relax.transform.RewriteDataflowReshape(),
            relax.transform.ToNonDataflow(),
            relax.transform.RemovePurityChecking(),
            relax.transform.CallTIRRewrite(),
            *plan,
            relax.transform.LowerAllocTensor(),
            relax.transform.KillAfterLastUse(),
            relax.transform.LowerRuntimeBuiltin(),
            relax.transform.ComputePrimValue(),
            relax.transform.VMShapeLower(),
            relax.transform.AttachGlobalSymbol(),
            devices.separate_cpus(target),
        ]
    )
    try:
        with target, device_code():
            return relax.build(mod, target, relax_pipeline=finish)
    except BatonError:
        raise
    except Exception as error:
        raise BuildError(f"TVM could not generate code for {target.kind.name}: {error}") from error
