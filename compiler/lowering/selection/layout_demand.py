"""Back-propagate blocked layouts from convolutions to the producers of their inputs.

    transpose (tokens to images) -> take, multiply, add (resizing) -> concat -> conv2d
    blocked here                    [------------- in blocks of channels -----------]

Operators in between follow the layout of their inputs (`layout_rules`). Otherwise all of them
would work on plain tensors, and the largest tensor would be converted before the convolution: one
scalar loop that selects between the parts for each channel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tvm import relax
from tvm.target import Target

from schedules.x86.machine.cpu import Machine

from ...ir.constants import dtype_of, static_shape
from ...ir.rewrite import operator_name
from .layout_rules import layout_rule

_CONVOLUTION = "nn.conv2d"
_DTYPE = "float32"


def block_of(target: Target) -> int | None:
    """Channels of a block for a CPU; None for other targets."""
    return Machine.from_target(target).lanes(_DTYPE) if target.kind.name == "llvm" else None


def worth_blocking(function: relax.Function, block: int) -> set[relax.Var]:
    """Variables of whole blocks that, past layout-preserving operators, only convolutions read."""
    wanted: dict[relax.Var, bool] = {}
    found: set[relax.Var] = set()

    def reads(var: relax.Var, may_be_blocked: bool) -> None:
        wanted[var] = wanted.get(var, True) and may_be_blocked

    for used in relax.analysis.free_vars(function.body.body):
        reads(used, False)
    for binding in _from_the_end(function):
        value, name = binding.value, operator_name(binding.value)
        images: list[relax.Var] = []
        if name == _CONVOLUTION and int(value.attrs.groups) == 1:
            images = list(_variables(value.args[:1]))
        elif layout_rule(value) is not None and wanted.get(binding.var, False):
            images = list(_variables(value.args))
            found.update(images)
        blocked = {each for each in images if _is_whole(each, block)}
        for used in relax.analysis.free_vars(value):
            reads(used, used in blocked)
    return {var for var in found if wanted[var]}


def _from_the_end(function: relax.Function) -> Iterator[relax.VarBinding]:
    for block in reversed(getattr(function.body, "blocks", ())):
        for binding in reversed(block.bindings):
            if isinstance(binding, relax.VarBinding):
                yield binding


def _variables(arguments: Iterable[relax.Expr]) -> Iterator[relax.Var]:
    for each in arguments:
        if isinstance(each, relax.Tuple):
            yield from _variables(each.fields)
        elif isinstance(each, relax.Var):
            yield each


def _is_whole(var: relax.Var, block: int) -> bool:
    shape = static_shape(var)
    return (
        shape is not None
        and len(shape) == 4
        and 0 not in shape
        and shape[1] % block == 0
        and dtype_of(var) == _DTYPE
    )
