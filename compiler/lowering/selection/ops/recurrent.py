"""Lower a recurrent layer to an implementation of the schedule library."""

from __future__ import annotations

from typing import Any

from tvm import relax

import schedules.x86  # noqa: F401  (registers its implementations)
from schedules.recurrent import RecurrentWorkload

from ....ir.constants import static_shape
from ..context import LoweringContext
from ..weight_packing import pack

NAME = "relay.nn.recurrent"


def lower_recurrent(call: relax.Call, at: LoweringContext) -> relax.Expr | None:
    """The kernel call for a `relay.nn.recurrent`, not yet emitted; None if there is no kernel."""
    inputs, weight = (static_shape(operand) for operand in call.args[:2])
    if inputs is None or weight is None:
        return None
    length, batch, _ = inputs
    dtype = str(call.args[0].ty.dtype)
    cell, backward = str(call.attrs["cell"]), bool(call.attrs["backward"])
    workload = RecurrentWorkload(cell, length, batch, weight[0], backward, dtype)
    chosen = at.choose("nn.recurrent", workload)
    if chosen is None:
        return None
    impl, config = chosen
    pack_weight = impl.pack
    operands = list(call.args)
    if pack_weight is not None:

        def packed(ops: Any, array: Any) -> Any:
            return pack_weight(ops, array, config)

        operands[1] = pack(at.builder, operands[1], packed)
    return at.builder.call_te(
        lambda *tensors: impl.compute(workload, config, *tensors),
        *operands,
        primfunc_name_hint=f"recurrent_{cell}",
    )
