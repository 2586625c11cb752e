"""Relax's names of Relay's operators, for backends that know operators by those."""

from __future__ import annotations

import functools

import tvm
from tvm import relax

from ...graph.rewrite import operator_name
from ..nest import post_order

_ARRANGING = frozenset(
    ("astype", "broadcast_to", "expand_dims", "permute_dims", "reshape", "squeeze")
)
"""Operators that only bring operands into the form that another one takes."""


def relax_name(call: relax.Call) -> str:
    """Name, without "relax.", of the operator of Relax that a call of a Relay operator becomes.

    Operators that arrange its operands are left aside: `nn.dense`, `nn.batch_matmul` and
    `nn.matmul` are all "matmul", `nn.bias_add` is "add". A call that becomes several others keeps
    Relay's name, and so does one whose name Relax has as well. Other calls have their own name.
    """
    from .. import dialect

    own = dialect.relay_name(call)
    if not own or _is_shared(own):
        return str(call.op.name).removeprefix("relax.")
    made = [node for node in post_order(dialect.expand(call)) if isinstance(node, relax.Call)]
    names = [operator_name(node) for node in made if not any(node.same_as(x) for x in call.args)]
    main = [name for name in names if name not in _ARRANGING] or names
    return main[0] if len(main) == 1 and main[0] else own


@functools.cache
def _is_shared(name: str) -> bool:
    return f"relax.{name}" in tvm.ir.Op.list_op_names()
