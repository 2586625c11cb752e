"""`relay.backend.Executor` and `Runtime`: names and options that scripts pass to a build.

The options, their types and defaults are taken from TVM 0.18's `src/relay/backend/executor.cc`
and `runtime.cc`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ...errors import BuildError

_OBJECT_NAMES: dict[type, str] = {
    bool: "runtime.BoxBool",
    int: "runtime.BoxInt",
    str: "runtime.String",
}


class _Options:
    """Named executor or runtime with options; BuildError for unknown names or wrong types."""

    # For each name, the types of its options, and the defaults that exist.
    registered: ClassVar[dict[str, dict[str, type]]] = {}
    defaults: ClassVar[dict[str, dict[str, Any]]] = {}

    def __init__(self, name: str, options: Mapping[str, Any] | None = None) -> None:
        types = self._options_of(name)
        self.name = name
        self._values = dict(self.defaults.get(name, {}))
        for option, value in (options or {}).items():
            if option not in types:
                raise BuildError(
                    f'Attribute "{option}" is not available on this {type(self).__name__}; '
                    f"{name} has {', '.join(types)}"
                )
            wanted, given = _object_name(types[option]), _object_name(type(value))
            if wanted != given:
                raise BuildError(
                    f'Attribute "{option}" should have type "{wanted}" but instead found "{given}"'
                )
            self._values[option] = value

    @classmethod
    def _options_of(cls, name: str) -> dict[str, type]:
        if name not in cls.registered:
            raise BuildError(
                f'{cls.__name__} "{name}" is not defined; there are {", ".join(cls.registered)}'
            )
        return cls.registered[name]

    @classmethod
    def list_registered(cls) -> list[str]:
        return list(cls.registered)

    @classmethod
    def list_registered_options(cls, name: Any) -> dict[str, str]:
        """Map the options of a name to the names of their types."""
        options = cls._options_of(str(getattr(name, "name", name)))
        return {option: _object_name(kind) for option, kind in options.items()}

    def __contains__(self, option: str) -> bool:
        return option in self._values

    def __getitem__(self, option: str) -> Any:
        return self._values[option]

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self._values!r})"


def _object_name(kind: type) -> str:
    return _OBJECT_NAMES.get(kind, kind.__name__)


class Executor(_Options):
    """`Executor("graph", {"link-params": True})`."""

    registered: ClassVar[dict[str, dict[str, type]]] = {
        "aot": {
            "link-params": bool,
            "unpacked-api": bool,
            "interface-api": str,
            "workspace-byte-alignment": int,
            "constant-byte-alignment": int,
        },
        "graph": {"link-params": bool},
    }
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "aot": {"link-params": True},
        "graph": {"link-params": False},
    }


class Runtime(_Options):
    """`Runtime("cpp", {"system-lib": False})`."""

    registered: ClassVar[dict[str, dict[str, type]]] = {
        "cpp": {"system-lib": bool},
        "crt": {"system-lib": bool},
    }
