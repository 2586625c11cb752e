"""Data among the results of functions: `ConstructorValue`, which the interpreter returned."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tvm import relax

from .adt import Constructor, GlobalTypeVar
from .text.kinds import RESULT_FORM


class ConstructorValue:
    """Data: the constructor that made it, and the values of the fields."""

    def __init__(self, tag: int, fields: Sequence[Any], constructor: Constructor) -> None:
        self.tag = tag
        self.fields = list(fields)
        self.constructor = constructor

    def __repr__(self) -> str:
        return f"{self.constructor.name_hint}({', '.join(map(repr, self.fields))})"


def form_of_result(function: relax.Function) -> Any:
    """What of a function's result is data; None where nothing is. See `kinds.form_of`."""
    form = (function.attrs or {}).get(RESULT_FORM)
    return None if form is None else json.loads(str(form))


def as_data(value: Any, form: Any) -> Any:
    """A result, nested in lists, with `ConstructorValue`s for what is data in it."""
    if form is None:
        return value
    if isinstance(form, list):
        return [as_data(*pair) for pair in zip(value, form)]
    home, name, number, forms = form["data"]
    made = Constructor(name, [], GlobalTypeVar(home))
    made.index = number
    return ConstructorValue(made.tag, [as_data(*pair) for pair in zip(value, forms)], made)
