"""Python environments that a script makes for itself, with nothing of the checkout in them."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any

LEFT_OUT = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "TVM_LIBRARY_PATH", "TVM_USE_RUNTIME_LIB")
INSTALLERS = ("pip", "setuptools", "pkg_resources", "_distutils_hack", "wheel")
"""What a new environment has by itself."""


class CommandError(Exception):
    """A command failed; the message has its last words."""


def run(
    command: list[str], folder: pathlib.Path, seconds: float, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, without what points Python at the checkout.

    Raises
    ------
    CommandError
        It failed, or took longer than `seconds`.
    """
    kept = {name: value for name, value in os.environ.items() if name not in LEFT_OUT}
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**kept, **variables},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise CommandError(f"{' '.join(command)}: not done after {seconds:.0f} s") from error
    if done.returncode:
        said = (done.stdout + done.stderr).strip()[-3000:]
        raise CommandError(f"{' '.join(command)}: status {done.returncode}\n{said}")
    return done


class Environment:
    """A new environment in a folder, with the requirements installed.

    Parameters
    ----------
    folder : Path
        Is made.
    requirements : str
        As for pip: names, or paths of wheels.
    cache : Path
        Baton's caches in this environment.
    """

    def __init__(self, folder: pathlib.Path, *requirements: str, cache: pathlib.Path) -> None:
        self.folder = folder
        self._cache = cache
        run([sys.executable, "-m", "venv", str(folder)], folder.parent, 600)
        pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        self.python(*pip, *requirements)

    def python(self, *arguments: str, seconds: float = 600, **variables: str) -> str:
        """What a program of the environment's Python prints; raises CommandError."""
        return self._run("python", *arguments, seconds=seconds, **variables)

    def baton(self, *arguments: str, seconds: float = 600, **variables: str) -> str:
        """What the environment's `baton` prints; raises CommandError."""
        return self._run("baton", "--quiet", *arguments, seconds=seconds, **variables)

    def baton_json(self, *arguments: str, seconds: float = 600) -> Any:
        """What it prints with `--json`."""
        return json.loads(self.baton(*arguments, "--json", seconds=seconds))

    def _run(self, program: str, *arguments: str, seconds: float, **variables: str) -> str:
        command = [str(self.folder / "bin" / program), *arguments]
        cache = {"XDG_CACHE_HOME": str(self._cache)}
        return run(command, self.folder.parent, seconds, **cache, **variables).stdout

    def megabytes(self) -> float:
        """What the packages take on disk, without pip's own."""
        (packages,) = self.folder.glob("lib/python*/site-packages")
        files = (
            path
            for entry in packages.iterdir()
            if entry.name.partition("-")[0] not in INSTALLERS
            for path in (entry.rglob("*") if entry.is_dir() else [entry])
            if path.suffix != ".pyc"
        )
        return sum(path.lstat().st_size for path in files if path.is_file()) / 1e6
