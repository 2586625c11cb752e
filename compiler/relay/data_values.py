"""Data among the results of functions: `ConstructorValue`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tvm import relax

from .adt import Constructor, GlobalTypeVar
from .text.kinds import RESULT_FORM


class ConstructorValue(list[Any]):
    """Data: the values of the fields, and the constructor that made it.

    Attributes
    ----------
    tag : int
        The constructor's.
    constructor : Constructor
        Of data that only running makes, it knows its name alone.
    """

    def __init__(self, tag: int, fields: Iterable[Any], constructor: Constructor) -> None:
        super().__init__(fields)
        self.tag = tag
        self.constructor = constructor

    @property
    def fields(self) -> list[Any]:
        """The fields' values."""
        return list(self)

    def __repr__(self) -> str:
        return f"{self.constructor.name_hint}({', '.join(map(repr, self))})"


def made_by(name: str, tag: int, fields: Iterable[Any]) -> ConstructorValue:
    """Data of a constructor of this name and tag."""
    return ConstructorValue(tag, fields, Constructor(name, [], GlobalTypeVar("")))


def form_of_result(function: relax.Function) -> Any:
    """What of a function's result is data; None where nothing is. See `kinds.form_of`."""
    form = (function.attrs or {}).get(RESULT_FORM)
    return None if form is None else json.loads(str(form))


def with_data(value: Any, form: Any) -> Any:
    """A result, nested in lists, with `ConstructorValue`s for what is data in it."""
    if form is None:
        return value
    if isinstance(form, list):
        return [with_data(*pair) for pair in zip(value, form)]
    name, tag, forms = form["data"]
    return made_by(name, tag, (with_data(*pair) for pair in zip(value, forms)))
