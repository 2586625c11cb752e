"""What scripts register for operators, in the form of TVM 0.6."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...relay.op import op

_register = op.register_alter_op_layout


def register_alter_op_layout(
    op_name: str, alter_layout: Callable[..., Any] | None = None, level: int = 10
) -> Any:
    """Register a function of attributes, operands and their types; a decorator without one."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _register(
            op_name, lambda attrs, inputs, tinfos, _type: function(attrs, inputs, tinfos), level
        )
        return function

    return register if alter_layout is None else register(alter_layout)
