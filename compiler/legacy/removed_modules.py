"""Modules of TVM 0.18 that scripts import and seldom use: their names refuse when they are used.

`from tvm.relay.prelude import Prelude` at the head of a script is no reason not to run it.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, NoReturn

from ..errors import LegacyImportError


class NoCounterpart(LegacyImportError):
    """A module below one that moved is not there today."""


class Absent:
    """A name of a module that nothing stands for; whatever is done with it says so.

    Nothing is an instance of a class that is gone, which scripts may ask.

    `name`: the name with its module's. `instead`: what to use instead.
    """

    def __init__(self, name: str, instead: str) -> None:
        self._name, self._instead = name, instead

    def _refuse(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise LegacyImportError(
            f"{self._name} is gone from TVM, and nothing stands for it: {self._instead}",
            name=self._name.rpartition(".")[0],
        )

    __call__ = __mro_entries__ = _refuse

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._refuse()

    def __instancecheck__(self, _instance: Any) -> bool:
        return False

    def __repr__(self) -> str:
        return f"<{self._name}: gone>"


class AbsentModule(ModuleType):
    """A module all of whose names are `Absent`."""

    def __init__(self, name: str, instead: str) -> None:
        super().__init__(name, f"Gone: {instead}.")
        self.__path__: list[str] = []
        self._instead = instead

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return Absent(f"{self.__name__}.{name}", self._instead)
