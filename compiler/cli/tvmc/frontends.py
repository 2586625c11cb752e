"""Reading models for `tvmc`, by the names of their formats."""

from __future__ import annotations

import importlib
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from compiler import relay
from compiler.cli.model_files import read_model

from . import TVMCException, TVMCImportError
from .model import TVMCModel
from .runner import generate_tensor_data


class TVMCFileNotFound(TVMCException, FileNotFoundError):
    """There is no such model file."""


class Frontend(ABC):
    """The importer of one format.

    `format`: its name. `endings`: of names of files, without the dot. `packages`: modules that it
    needs beyond Baton's own.
    """

    format: ClassVar[str]
    endings: ClassVar[tuple[str, ...]]
    packages: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return cls.format

    @classmethod
    def suffixes(cls) -> list[str]:
        """File name extensions, without the dot."""
        return list(cls.endings)

    @abstractmethod
    def read(self, path: str, shapes: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
        """Module and weights of a file that is there."""

    def load(
        self,
        path: str | os.PathLike[str],
        shape_dict: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Module and weights of a file.

        Raises TVMCException: there is no such file, a package is missing, or the format can't be
        imported.
        """
        for package in self.packages:
            try:
                importlib.import_module(package)
            except ImportError as error:
                raise TVMCImportError(f"{self.name()} models need the package {package}") from error
        if not os.path.exists(path):
            raise TVMCFileNotFound(f"there is no model file {path}")
        shapes = {name: tuple(shape) for name, shape in (shape_dict or {}).items()}
        return self.read(str(path), shapes, kwargs)


def _without_importer(kind: str, ending: str, instead: str) -> type[Frontend]:
    """Make the class of a format whose importer went with Relay."""

    class WithoutImporter(Frontend):
        format, endings = kind, (ending,)

        def load(self, path: Any, shape_dict: Any = None, **kwargs: Any) -> Any:
            raise TVMCException(f"no importer for {kind!r} is left: {instead}")

        read = load  # type: ignore[assignment]

    return WithoutImporter


KerasFrontend = _without_importer("keras", "h5", "export the model as ONNX or TFLite")
PaddleFrontend = _without_importer("paddle", "pdmodel", "export the model as ONNX")
TensorflowFrontend = _without_importer("pb", "pb", "export the model as ONNX or TFLite")


class OnnxFrontend(Frontend):
    """ONNX."""

    format = "onnx"
    endings = ("onnx",)
    packages = ("onnx",)

    def read(self, path: str, shapes: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
        return relay.frontend.from_onnx(path, dict(shapes), freeze_params=False, **options)


class TFLiteFrontend(Frontend):
    """TFLite."""

    format = "tflite"
    endings = ("tflite",)

    def read(self, path: str, shapes: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
        return relay.frontend.from_tflite(path, dict(shapes), **options)


class PyTorchFrontend(Frontend):
    """TorchScript models written by `torch.jit.save`."""

    format = "pytorch"
    endings = ("pth", "zip")
    packages = ("torch",)

    def read(self, path: str, shapes: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
        if not shapes:
            raise TVMCException("--input-shapes must be specified for PyTorch models")
        import torch

        traced = torch.jit.load(path).float().eval()
        return relay.frontend.from_pytorch(traced, list(shapes.items()), **options)


class RelayFrontend(Frontend):
    """Relay's text."""

    format = "relay"
    endings = ("relay",)

    def read(self, path: str, shapes: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
        mod, params = read_model(Path(path), {})
        return mod, {**_random_weights(mod, shapes), **params}


ALL_FRONTENDS: tuple[type[Frontend], ...] = (
    *(OnnxFrontend, PyTorchFrontend, RelayFrontend, TFLiteFrontend),
    *(KerasFrontend, PaddleFrontend, TensorflowFrontend),
)


def get_frontend_names() -> list[str]:
    """The names of the formats."""
    return [frontend.name() for frontend in ALL_FRONTENDS]


def get_frontend_by_name(name: str) -> Frontend:
    """The importer of a format. Raises TVMCException: there is no such format."""
    for frontend in ALL_FRONTENDS:
        if frontend.name() == name:
            return frontend()
    known = ", ".join(get_frontend_names())
    raise TVMCException(f"unrecognized frontend {name!r}. Choose from: {known}")


def guess_frontend(path: str | os.PathLike[str]) -> Frontend:
    """The importer of the format that a file's name ends like.

    Raises TVMCException: it ends like none.
    """
    suffix = Path(path).suffix.lower().removeprefix(".")
    for frontend in ALL_FRONTENDS:
        if suffix in frontend.suffixes():
            return frontend()
    raise TVMCException("failed to infer the model format. Please specify --model-format")


def load_model(
    path: str | os.PathLike[str],
    model_format: str | None = None,
    shape_dict: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> TVMCModel:
    """Import a model file.

    `model_format`: one of `get_frontend_names`; by default chosen by the file name extension.
    `shape_dict`: of inputs; PyTorch models need them. Where Relay text comes with them, its other
    parameters are random weights, unless a file `.params` is next to it. `**kwargs`: for the
    importer.
    Raises TVMCException: the format is unknown, has no importer, or needs `shape_dict`. Raises
    FrontendError: the model can't be imported.
    """
    frontend = get_frontend_by_name(model_format) if model_format else guess_frontend(path)
    return TVMCModel(*frontend.load(path, shape_dict, **kwargs))


def _random_weights(mod: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Values for parameters of Relay text, which holds none, but for the named inputs."""
    return {
        str(var.name): generate_tensor_data(
            tuple(map(int, var.ty.shape)), str(var.ty.dtype), "random"
        )
        for var in mod["main"].params
        if inputs and str(var.name) not in inputs
    }
