"""Run-time values of algebraic data types: `ConstructorValue`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tvm import relax

from .adt import Constructor, GlobalTypeVar
from .text.kinds import RESULT_FORM


class ConstructorValue(list[Any]):
    """Value of an algebraic data type; at run time only the constructor's name is set."""

    def __init__(self, tag: int, fields: Iterable[Any], constructor: Constructor) -> None:
        super().__init__(fields)
        self.tag = tag
        self.constructor = constructor

    @property
    def fields(self) -> list[Any]:
        """Values of the fields."""
        return list(self)

    def __repr__(self) -> str:
        return f"{self.constructor.name_hint}({', '.join(map(repr, self))})"


def made_by(name: str, tag: int, fields: Iterable[Any]) -> ConstructorValue:
    """Create a value for the constructor with this name and tag."""
    return ConstructorValue(tag, fields, Constructor(name, [], GlobalTypeVar("")))


def form_of_result(function: relax.Function) -> Any:
    """Describe the data in a function's result; None if there is none. See `kinds.form_of`."""
    form = (function.attrs or {}).get(RESULT_FORM)
    return None if form is None else json.loads(str(form))


def with_data(value: Any, form: Any) -> Any:
    """Replace the parts of a nested-list result that are data with `ConstructorValue`s."""
    if form is None:
        return value
    if isinstance(form, list):
        return [with_data(*pair) for pair in zip(value, form)]
    name, tag, forms = form["data"]
    return made_by(name, tag, (with_data(*pair) for pair in zip(value, forms)))
