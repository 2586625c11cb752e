"""Data types of `tvmc`: model, library package and run results."""

from __future__ import annotations

import os
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import tvm

from compiler import relay, runtime
from compiler.support.archive_limits import ArchiveError, unpack_tar
from compiler.support.regular_files import open_regular, os_errors_as

from . import TVMCException

_MODULE, _PARAMS, _RECORDS, _PACKAGE = "model.json", "params.bin", "tuning_records", "package.tar"


class TVMCModel:
    """A model: a module of Relay's operators and its weights.

    `model_path`: what `save` wrote, instead of both.
    """

    def __init__(
        self,
        mod: tvm.IRModule | None = None,
        params: Mapping[str, Any] | None = None,
        model_path: str | os.PathLike[str] | None = None,
    ) -> None:
        if (mod is None) == (model_path is None):
            raise TVMCException("give either mod and params, or model_path")
        self._folder = tempfile.TemporaryDirectory(prefix="tvmc_")
        if mod is not None:
            self.mod, self.params = mod, dict(params or {})
        else:
            self.load(model_path or "")

    def save(self, model_path: str | os.PathLike[str]) -> None:
        """Write the model, and the records and the package made of it, to one tar."""
        folder = Path(self._folder.name)
        (folder / _MODULE).write_text(str(tvm.ir.save_json(self.mod)))
        (folder / _PARAMS).write_bytes(relay.save_param_dict(self.params))
        with tarfile.open(model_path, "w") as tar:
            for path in sorted(folder.iterdir()):
                tar.add(path, path.name)

    def load(self, model_path: str | os.PathLike[str]) -> None:
        """Read what `save` wrote."""
        folder = Path(self._folder.name)
        _unpack(model_path, folder, "a model of tvmc", (_MODULE, _PARAMS))
        self.mod = relay.load_json((folder / _MODULE).read_text(), str(model_path))
        self.params = dict(relay.load_param_dict((folder / _PARAMS).read_bytes()))

    def default_tuning_records_path(self) -> str:
        """Where `tune` keeps records that it was given no file for."""
        return str(Path(self._folder.name) / _RECORDS)

    def default_package_path(self) -> str:
        """Where `compile` keeps a package that it was given no file for."""
        return str(Path(self._folder.name) / _PACKAGE)

    def summary(self, file: IO[str] | None = None) -> None:
        """Print the module."""
        print(self.mod, file=file)


class TVMCPackage:
    """A compiled model in a file.

    `lib_path`: the library inside, unpacked. `graph`: the graph's JSON. `params`: the weights, as
    `GraphModule.load_params` takes them. `type`: "classic".
    Raises TVMCException: the file is not such a package.
    """

    type = "classic"

    def __init__(self, package_path: str, project_dir: str | None = None) -> None:
        if project_dir is not None:
            raise TVMCException("project_dir belongs to microTVM, which has no successor")
        self._folder = tempfile.TemporaryDirectory(prefix="tvmc_")
        self.import_package(package_path)

    def import_package(self, package_path: str) -> None:
        """Unpack a package."""
        folder = Path(self._folder.name)
        _unpack(package_path, folder, "a package of tvmc")
        found = [folder / f"mod.{suffix}" for suffix in ("so", "tar")]
        libraries = [path for path in found if path.is_file()]
        if not libraries:
            what = "microTVM's model library format" if (folder / "metadata.json").exists() else ""
            raise TVMCException(f"{package_path} holds no library mod.so {what and f'({what})'}")
        _require_files(package_path, folder, ("mod.json", "mod.params"))
        self.package_path, self.lib_path = package_path, str(libraries[0])
        self.graph = (folder / "mod.json").read_text()
        self.params = (folder / "mod.params").read_bytes()

    def load(self) -> runtime.FactoryModule:
        """The library."""
        return runtime.load_module(self.lib_path)


class TVMCResult:
    """Outputs and times of a run.

    `outputs`: under the names "output_0", "output_1"... `times`: in seconds, of a run that was
    timed.
    """

    def __init__(self, outputs: dict[str, np.ndarray], times: Any) -> None:
        self.outputs, self.times = outputs, times

    def format_times(self) -> str:
        """A table of mean, median, extremes and deviation."""
        return str(self.times)

    def get_output(self, name: str) -> np.ndarray:
        """One output."""
        return self.outputs[name]

    def save(self, output_path: str) -> None:
        """Write the outputs to an `.npz`."""
        np.savez(output_path, **self.outputs)  # type: ignore[arg-type]

    def __str__(self) -> str:
        return f"{self.format_times()}\nOutput Names:\n {list(self.outputs)}"


def _unpack(
    path: str | os.PathLike[str], folder: Path, what: str, files: Sequence[str] = ()
) -> None:
    """Write the plain files of an archive into a folder.

    Raises TVMCException: the file can't be read, is no tar, exceeds a limit, or lacks one of
    `files`.
    """
    try:
        with os_errors_as(TVMCException, f"can't read {path}"), open_regular(path) as file:
            unpack_tar(file, folder)
    except ArchiveError as error:
        raise TVMCException(f"{path} is not {what}: {error}; pack it again") from error
    _require_files(path, folder, files)


def _require_files(path: str | os.PathLike[str], folder: Path, files: Sequence[str]) -> None:
    missing = [name for name in files if not (folder / name).is_file()]
    if missing:
        raise TVMCException(f"{path} holds no {', '.join(missing)}; pack it again with tvmc")
