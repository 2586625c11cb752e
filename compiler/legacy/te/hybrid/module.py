"""`te.hybrid.build`: a schedule as the text of a hybrid function."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import te

from ..driver import build as build_library
from ..lowering import schedule_to_function
from ..schedule import Schedule, create_schedule
from .decorator import is_symbolic, operation
from .printer import hybrid_text
from .source import Source, parse_source


class HybridModule:
    """A hybrid function that was made of a schedule, or read from a file.

    Its text is parsed and never run: called with arrays, the function is compiled for them.

    `src_`: the text.
    """

    def __init__(self, src: str | None = None, name: str | None = None) -> None:
        self.src_ = self.name = ""
        self._source: Source | None = None
        if src is not None:
            self._read(src)
            self.name = name or self.name

    def _read(self, text: str) -> None:
        self._source = parse_source(text)
        self.src_, self.name = text, self._source.name

    def get_source(self) -> str:
        """The text."""
        return self.src_

    def save(self, path: str) -> None:
        """Write the text to a file, which gets the ending ".py"."""
        file = Path(path)
        (file if file.suffix == ".py" else Path(f"{path}.py")).write_text(self.src_)

    def load(self, path: str) -> None:
        """Take the function of a file."""
        self._read(Path(path).read_text())

    def __call__(self, *args: Any) -> Any:
        """Apply the function to tensors, or compute it on arrays and numbers."""
        if self._source is None:
            raise ValueError("the module has no function yet; load one")
        if any(map(is_symbolic, args)):
            return operation(self._source, args)
        return _run(self._source, args)


def build(
    sch: Schedule, inputs: Sequence[Any], outputs: Sequence[Any], name: str = "hybrid_func"
) -> HybridModule:
    """The hybrid function that a schedule is.

    `inputs`: its parameters. `outputs`: what it returns.
    Raises ScheduleError: the schedule holds a statement that the hybrid language has no word for.
    """
    function = schedule_to_function(sch, [*inputs, *outputs], name)
    return HybridModule(hybrid_text(function, len(inputs), name))


def _run(source: Source, args: Sequence[Any]) -> Any:
    """What a hybrid function computes of arrays and numbers, on this machine's CPU."""
    arrays: list[np.ndarray] = []
    tensors: list[Any] = []

    def taken(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            arrays.append(value)
            name = f"x{len(arrays)}"
            tensors.append(te.placeholder(value.shape, str(value.dtype), name=name))
            return tensors[-1]
        return [taken(each) for each in value] if isinstance(value, (list, tuple)) else value

    made = operation(source, [taken(each) for each in args])
    outputs = made if isinstance(made, list) else [made]
    library = build_library(create_schedule(outputs[0].op), [*tensors, *outputs], "llvm")
    results = [
        tvm.runtime.tensor(np.zeros([int(extent) for extent in out.shape], str(out.dtype)))
        for out in outputs
    ]
    library(*map(tvm.runtime.tensor, arrays), *results)
    found = [each.numpy() for each in results]
    return found if isinstance(made, list) else found[0]
