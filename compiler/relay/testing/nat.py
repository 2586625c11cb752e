"""Convert natural numbers of `std/nat.rly` to and from Python integers."""

from __future__ import annotations

from typing import Any

from tvm import relax

from .. import adt
from ..data_values import ConstructorValue
from ..prelude import import_from_std


def add_nat_definitions(prelude: Any) -> None:
    """Add `std/nat.rly` to a prelude in place: the attributes `nat`, `z`, `s` and its functions.

    `double` and `add` are `@nat_double` and `@nat_add`; `nat_nth`, `nat_update` and `nat_iterate`
    keep their names.
    """
    import_from_std(prelude.mod, "nat.rly")
    prelude.nat, prelude.z, prelude.s = adt.get_type(prelude.mod, "nat")
    for name in ("double", "add", "nat_nth", "nat_update", "nat_iterate"):
        variable = prelude.mod.get_global_var(f"nat_{name.removeprefix('nat_')}")
        setattr(prelude, name, variable)


def count(prelude: Any, n: ConstructorValue) -> int:
    """Convert a natural number value to int."""
    _, zero, _ = adt.get_type(prelude.mod, "nat")
    found = 0
    while n.tag != zero.tag:
        found += 1
        n = n.fields[0]
    return found


def make_nat_value(prelude: Any, n: int) -> ConstructorValue:
    """Convert an int to a natural number value."""
    _, zero, succ = adt.get_type(prelude.mod, "nat")
    made = ConstructorValue(zero.tag, [], zero)
    for _ in range(n):
        made = ConstructorValue(succ.tag, [made], succ)
    return made


def make_nat_expr(prelude: Any, n: int) -> relax.Expr:
    """Convert an int to a natural number expression."""
    _, zero, succ = adt.get_type(prelude.mod, "nat")
    made = zero()
    for _ in range(n):
        made = succ(made)
    return made
