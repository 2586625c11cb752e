"""Recurrent layers over whole sequences, which Relax lacks."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx

from schedules.recurrent import RecurrentWorkload, all_steps
from schedules.recurrent import Tiles as _Tiles

from ....ir.op_facts import shape_rules
from ..te_op import kernel


def _compute(
    inputs: te.Tensor, weight: te.Tensor, *others: te.Tensor, cell: str, backward: bool
) -> Any:
    length, batch, _ = inputs.shape
    if isinstance(length, tirx.IntImm) and isinstance(batch, tirx.IntImm):
        length, batch = int(length), int(batch)
    hidden = int(weight.shape[0])
    workload = RecurrentWorkload(cell, length, batch, hidden, bool(backward), inputs.dtype)
    return all_steps(workload, _Tiles(), inputs, weight, *others)


recurrent = kernel("nn.recurrent", _compute, shapes=shape_rules.recurrent_states)
"""All time steps of one direction of a layer; operands and results as in `RecurrentWorkload`.

Attributes: `cell`, one of `schedules.recurrent.GATES`, and `backward`.
"""
