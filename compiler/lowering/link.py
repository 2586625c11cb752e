"""Turns scheduled kernels and the Relax functions that call them into one VM executable."""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.target import Target

from ..errors import BuildError


def link(mod: tvm.IRModule, target: Target) -> relax.VMExecutable:
    """Plan memory, generate code and link.

    Raises
    ------
    BuildError
        TVM's code generator refused a kernel.
    """
    finish = tvm.transform.Sequential(
        [
            relax.transform.RewriteDataflowReshape(),
            relax.transform.ToNonDataflow(),
            relax.transform.RemovePurityChecking(),
            relax.transform.CallTIRRewrite(),
            relax.transform.StaticPlanBlockMemory(),
            relax.transform.LowerAllocTensor(),
            relax.transform.KillAfterLastUse(),
            relax.transform.LowerRuntimeBuiltin(),
            relax.transform.ComputePrimValue(),
            relax.transform.VMShapeLower(),
            relax.transform.AttachGlobalSymbol(),
        ]
    )
    try:
        with target:
            return relax.build(mod, target, relax_pipeline=finish)
    except Exception as error:
        raise BuildError(f"TVM could not generate code for {target.kind.name}: {error}") from error
