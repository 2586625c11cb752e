"""Relay's names of what kernels compute, for reports."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from .registry import is_available, names

_PREFERRED = ("", "nn.", "image.", "vision.")
"""Families in whose names an operator is looked for first: TOPI has one compute for `add`,
`qnn.add` and `dyn.add`."""


def operator_of(compute: str, ranks: Sequence[int]) -> str:
    """The Relay operator that a compute of TOPI belongs to; `compute` itself if there is none.

    TOPI calls its computes as Relay calls the operators, without the families: `conv2d` is
    `nn.conv2d`. Matrix products, "matmul", are `nn.batch_matmul` where the right operand is a
    stack of matrices, else `nn.dense`.

    Parameters
    ----------
    ranks
        Numbers of axes of the operands.
    """
    if compute == "matmul":
        return "nn.batch_matmul" if len(ranks) > 1 and ranks[1] > 2 else "nn.dense"
    return _families().get(compute, compute)


@functools.lru_cache(maxsize=1)
def _families() -> Mapping[str, str]:
    """Relay's operators by their names without the family."""
    found: dict[str, str] = {}
    for family in _PREFERRED:
        for name in names():
            short = name.removeprefix(family)
            if name.startswith(family) and "." not in short and is_available(name):
                found.setdefault(short, name)
    return found
