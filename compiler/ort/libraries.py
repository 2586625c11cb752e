"""Exported libraries as models of sessions; needs the runtime alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compiler.errors import InputError, TargetError
from compiler.runtime import load_module
from compiler.runtime.metadata import TensorInfo

from .described import ModelMetadata, NodeArg, Shapes
from .options import SessionOptions, provider_names, session_of
from .values import type_name

if TYPE_CHECKING:
    from .parts import Part

SUFFIXES = (".so", ".tar")


class Library:
    """What an `InferenceSession` asks of its model; it says what the arguments are."""

    def __init__(
        self, path: Path, options: SessionOptions, providers: Sequence[str | tuple[str, Any]] | None
    ):
        if options._initializers or options._denotations:
            raise InputError(
                f"the library {str(path)!r} has packed weights, and no denotations of dimensions; "
                "give initializers and denotations to a session of the ONNX model"
            )
        library = load_module(path)
        metadata = library.metadata
        on_gpu = "cuda" in metadata.devices
        self.provider = "CUDAExecutionProvider" if on_gpu else "CPUExecutionProvider"
        if providers is not None and self.provider not in provider_names(providers):
            raise TargetError(
                f"the library {str(path)!r} was built for {metadata.target}: it runs with the "
                f"provider {self.provider}, not with {', '.join(provider_names(providers))}"
            )
        self.inputs = [_node_arg(info, options._dimensions) for info in metadata.inputs]
        self.outputs = [_node_arg(info, options._dimensions) for info in metadata.outputs]
        self.about = ModelMetadata("baton", metadata.mod_name, "", "", "", 0)
        self.parts: list[Part] = []
        self._session = session_of(library, options)

    def run(self, feed: dict[str, Any], shapes: Shapes) -> dict[str, Any]:
        """Values of the outputs by name."""
        return self._session.run(feed)


def _node_arg(info: TensorInfo, named: Mapping[str, int]) -> NodeArg:
    shape: list[int | str | None] = [
        named.get(extent, extent) if isinstance(extent, str) else extent if extent >= 0 else None
        for extent in info.shape
    ]
    return NodeArg(info.name, shape, type_name(info.dtype))
