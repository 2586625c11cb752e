"""Outlining bindings by the names of their variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tvm import IRModule

from compiler.errors import PartitionError

from .dataflow_graph import PROJECTION, RelaxFunction
from .outline import Group, outline


def contract(
    mod: IRModule,
    groups: Sequence[Sequence[str]],
    attrs: Sequence[Mapping[str, Any]],
    *,
    names: Sequence[str] | None = None,
    function: str = "main",
) -> IRModule:
    """Outline sets of bindings of a function as private functions.

    `groups` name the variables that operator calls are bound to, one set for each function.
    Projections (`lv[0]`) come along with their call, named or not. `attrs`: attributes of each
    function. `names`: of the new functions; `group_<i>` by default. Raises PartitionError: a name
    is unknown, ambiguous or in two groups, does not name an operator call in a dataflow block, a
    group is empty or spans blocks, or the groups would feed each other in a circle.
    """
    if len(attrs) != len(groups) or (names is not None and len(names) != len(groups)):
        raise PartitionError(f"{len(groups)} groups need as many attribute maps and names")
    main = RelaxFunction(mod, function)
    names_of = [variable.name for variable in main.variables]
    owner: dict[int, int] = {}
    result: list[Group] = []
    for number, group in enumerate(groups):
        members = _members(main, group, names_of)
        for index in members:
            if owner.setdefault(index, number) != number:
                name = names_of[index]
                raise PartitionError(f"binding {name!r} is in groups {owner[index]} and {number}")
        title = names[number] if names is not None else f"group_{number}"
        result.append(Group(members, title, attrs[number]))
    return outline(main, result) if result else mod.clone()


def _members(main: RelaxFunction, group: Sequence[str], names_of: Sequence[str]) -> list[int]:
    if not group:
        raise PartitionError("a group to contract is empty")
    places: dict[str, list[int]] = {name: [] for name in group}
    for index, name in enumerate(names_of):
        if name in places:
            places[name].append(index)
    for name, found in places.items():
        if len(found) != 1:
            problem = "binds no variable" if not found else f"binds {len(found)} variables"
            raise PartitionError(
                f"the function {problem} named {name!r}; a group needs unique names"
            )
    indices = {index for found in places.values() for index in found}
    members = {index for index in indices if main.kinds[index] != PROJECTION}
    for index in sorted(indices):
        name = names_of[index]
        if index in members and not main.claimable[index]:
            raise PartitionError(
                f"binding {name!r} is not a call of an operator in a dataflow block; not outlined"
            )
        if index not in members and main.entry(index)[0] not in members:
            raise PartitionError(f"binding {name!r} is an output of a call outside its group")
    if len({main.domains[index] for index in members}) > 1:
        raise PartitionError(f"the bindings {', '.join(sorted(group))} are in different blocks")
    return sorted(members)
