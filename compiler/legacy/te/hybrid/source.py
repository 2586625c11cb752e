"""The text of a hybrid function, and the values of its free names."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ....errors import ScheduleError


@dataclass(frozen=True, eq=False)
class Source:
    """A hybrid function as it is written."""

    node: ast.FunctionDef
    file: str = "text"  # where its text is; the lines of `node` are counted there
    # closure, globals: values of free names: in the functions around it, and in its module
    closure: Mapping[str, Any] = field(default_factory=dict)
    globals: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def parameters(self) -> list[str]:
        return [each.arg for each in self.node.args.args]


def source_of(function: Callable[..., Any]) -> Source:
    """The source of a Python function.

    Raises ScheduleError: Python does not know its text, as that of a function typed at its prompt.
    """
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError) as error:
        raise ScheduleError(
            f"hybrid.script {function.__name__}: its source is not to be had ({error}); "
            "write the function in a file"
        ) from error
    captured = inspect.getclosurevars(function)
    node = _function(textwrap.dedent("".join(lines)), function.__name__)
    ast.increment_lineno(node, max(first, 1) - 1)
    file = Path(function.__code__.co_filename).name
    return Source(node, file, captured.nonlocals, function.__globals__)


def parse_source(text: str) -> Source:
    """The hybrid function that a text holds; nothing of the text is run."""
    return Source(_function(text, "module"))


def _function(text: str, name: str) -> ast.FunctionDef:
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise ScheduleError(f"hybrid.script {name}: {error}") from error
    found = [each for each in tree.body if isinstance(each, ast.FunctionDef)]
    if len(found) != 1:
        raise ScheduleError(f"hybrid.script {name}: {len(found)} functions in its text, not one")
    return found[0]
