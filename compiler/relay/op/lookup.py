"""Lookup of Relay operators by name, and expansion to Relax."""

from __future__ import annotations

import functools
import importlib
import pkgutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from tvm import relax

from ...errors import RelayTypeError, UnsupportedRelayOperatorError
from .op_def import REQUIRED, Operator

OPERATORS: dict[str, Operator] = {}
"""All operators by name, once `load` has imported the families."""


@functools.lru_cache(maxsize=1)
def load() -> None:
    """Import the families; not `contrib`, whose backend tables look up operators themselves."""
    package = sys.modules[__package__]
    for module in pkgutil.walk_packages(package.__path__, f"{__package__}."):
        if not module.name.startswith(f"{__package__}.contrib"):
            importlib.import_module(module.name)


def names() -> list[str]:
    """Registered names of all operators, sorted."""
    load()
    return sorted(OPERATORS)


def is_available(name: str) -> bool:
    """Whether an operator of this name exists and is supported."""
    load()
    return name in OPERATORS and not OPERATORS[name].why_not


def lookup(name: str) -> Operator:
    """Look up an operator by name; raise UnsupportedRelayOperatorError if there is none."""
    load()
    found = OPERATORS.get(name)
    if found is None:
        raise UnsupportedRelayOperatorError(
            f"there is no Relay operator {name!r}; docs/relay_operators.md lists all operators"
        )
    return found


def call(
    name: str,
    args: Sequence[relax.Expr],
    attrs: Mapping[str, object] | None = None,
    type_args: Sequence[Any] = (),
) -> relax.Expr:
    """Expand a call of a Relay operator, as in Relay text and JSON, to Relax.

    `args` may be nested; omitted `attrs` have Relay's defaults; `type_args` are ignored, as the
    operands determine them. Returns a nested, typed expression; a tuple for operators with several
    results. Raises UnsupportedRelayOperatorError: the operator is unknown or unsupported.
    RelayTypeError: operands or attributes are inconsistent or do not fit the operator.
    """
    del type_args
    found = lookup(name)
    if found.why_not:
        found.function()
    operands = list(args)
    if len(operands) > len(found.operands):
        raise RelayTypeError(
            f"Relay operator {name} takes {len(found.operands)} operands "
            f"({', '.join(found.operands)}), got {len(operands)}"
        )
    values: dict[str, Any] = dict(zip(found.operands, operands))
    for attribute, value in (attrs or {}).items():
        if attribute in found.ignored:
            continue
        if attribute not in found.attributes:
            raise RelayTypeError(
                f"Relay operator {name} has no attribute {attribute!r}; it has "
                f"{', '.join(found.attributes) or 'none'}"
            )
        values[found.renamed.get(attribute, attribute)] = value
    for attribute, default in found.attributes.items():
        parameter = found.renamed.get(attribute, attribute)
        if parameter not in values:
            if default is REQUIRED:
                raise RelayTypeError(f"Relay operator {name} needs the attribute {attribute!r}")
            values[parameter] = default
    return found.function(**values)
