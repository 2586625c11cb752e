"""Import guard: `schedules` and `tuning_logs` always refer to Baton's packages.

Python searches the folder of a script first, so a user's folder of the same name would shadow
Baton's. Both packages are loaded from the folder that contains `compiler`. Modules of a user's
folder with the same name are found after Baton's.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path

_NAMES = ("schedules", "tuning_logs")


class _Folders(list[str]):
    """Search path of a package: Baton's folder, then same-named folders on `sys.path`."""

    def __init__(self, own: str) -> None:
        super().__init__([own])

    def __iter__(self) -> Iterator[str]:
        own = self[0]
        yield own
        name = os.path.basename(own)
        for entry in sys.path:
            folder = os.path.join(entry or os.curdir, name)
            if os.path.isdir(folder) and not os.path.samefile(folder, own):
                yield folder


def load_packages() -> None:
    """Load Baton's packages, skipping those that are not installed.

    Raises
    ------
    ImportError
        Another package of that name is loaded already.
    """
    root = Path(__file__).resolve().parents[1]
    for name in _NAMES:
        own = root / name
        if not own.is_dir():
            continue
        loaded = sys.modules.get(name)
        if loaded is not None:
            folders = getattr(loaded, "__path__", None) or [loaded.__file__]
            if str(own) not in map(os.path.realpath, folders):
                raise ImportError(
                    f"Baton's package {name!r} ({own}) collides with the package of that name in "
                    f"{', '.join(folders)}, which is loaded already: import compiler "
                    "before it, or rename it"
                )
            continue
        path = _Folders(str(own))
        spec = importlib.util.spec_from_file_location(
            name, own / "__init__.py", submodule_search_locations=path
        )
        if spec is None or spec.loader is None:
            raise ImportError(f"Baton's package {name!r} is missing in {root}")
        module = importlib.util.module_from_spec(spec)
        module.__path__ = path
        sys.modules[name] = module
        spec.loader.exec_module(module)
