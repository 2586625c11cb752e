"""`PassContext(config={"baton.precision": "strict"})`: no algorithm that rounds differently.

TVM's PassContext takes only keys that C++ code has registered. So its constructor is changed, as
soon as TVM is imported: it takes this key as well, and keeps it as the passes that are disabled by
it. Contexts that are made from others, and the keys of caches, copy those anyway.
"""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from .errors import BuildError

KEY = "baton.precision"
DEFAULT, STRICT = "default", "strict"
WINOGRAD, STRASSEN = "Winograd", "Strassen"
FEWER_MULTIPLICATIONS = (WINOGRAD, STRASSEN)
"""Passes that `disabled_pass` knows: algorithms that round differently, which "strict" disables."""

_MODULE = "tvm.ir.transform"


def disabled_by(precision: object) -> tuple[str, ...]:
    """The passes that a precision disables.

    Raises
    ------
    BuildError
        It is neither "default" nor "strict".
    """
    if precision not in (DEFAULT, STRICT):
        raise BuildError(
            f"{KEY} is {precision!r}; it can be {DEFAULT!r}, or {STRICT!r} for a build without "
            f"{' and '.join(FEWER_MULTIPLICATIONS)}"
        )
    return FEWER_MULTIPLICATIONS if precision == STRICT else ()


def of_disabled(passes: Sequence[object]) -> str:
    """The precision of a context that disables these passes."""
    return STRICT if set(FEWER_MULTIPLICATIONS) <= {str(name) for name in passes} else DEFAULT


def accept_key() -> None:
    """Let `tvm.transform.PassContext` take the key, now or as soon as TVM is imported."""
    if _MODULE in sys.modules:
        _extend(sys.modules[_MODULE])
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """Finds one module of TVM, as the other finders do, and has its class extended after that."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != _MODULE:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_extend(module: ModuleType) -> None:
            execute(module)
            _extend(module)

        spec.loader.exec_module = execute_and_extend  # type: ignore[method-assign]
        return spec


def _extend(module: Any) -> None:
    construct = module.PassContext.__init__
    if getattr(construct, "takes_precision", False):
        return

    def __init__(
        self: Any,
        opt_level: int = 2,
        required_pass: Any = None,
        disabled_pass: Any = None,
        instruments: Any = None,
        config: Mapping[str, Any] | None = None,
        **others: Any,
    ) -> None:
        if config and KEY in config:
            config = dict(config)
            disabled_pass = [*(disabled_pass or ()), *disabled_by(config.pop(KEY))]
        construct(self, opt_level, required_pass, disabled_pass, instruments, config, **others)

    __init__.takes_precision = True  # type: ignore[attr-defined]
    module.PassContext.__init__ = __init__
