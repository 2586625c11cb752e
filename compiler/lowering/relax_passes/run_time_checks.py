"""The frame of passes that put small kernels in front of operators, to check an operand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax

from ...errors import BuildError
from ...op_pattern import ATTRIBUTE, OPAQUE


def checked_by(checker: Any, mod: tvm.IRModule, name: str) -> tvm.IRModule:
    """The module with function `name` as a mutator over the module rewrites it.

    Parameters
    ----------
    checker : PyExprMutator
        `changed` says whether it changed anything, and `wrong` what it found wrong: an exception
        would lose its class on its way through TVM.

    Raises
    ------
    BuildError
        Something is wrong.
    """
    function = checker.visit_expr(mod[name])
    if checker.wrong:
        raise BuildError(checker.wrong[0])
    if not checker.changed:
        return mod
    checker.builder_.update_func(mod.get_global_var(name), function)
    return checker.builder_.get()


def emit_check(
    builder: relax.BlockBuilder,
    compute: Callable[..., Any],
    *operands: Any,
    hint: str,
    fuses: bool = False,
) -> relax.Var:
    """The result of a kernel that a function of TE computes.

    Parameters
    ----------
    hint : str
        Its name.
    fuses : bool
        Whether it may be fused: it does not raise.
    """
    call = builder.call_te(compute, *operands, primfunc_name_hint=hint)
    if not fuses:
        gvar = call.args[0]
        builder.update_func(gvar, builder.get()[gvar].with_attr(ATTRIBUTE, OPAQUE))
    return builder.emit(call)
