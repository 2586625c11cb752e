"""ONNX models of sessions: built when their shapes are known, in parts where Baton can't."""

from __future__ import annotations

import itertools
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx
from onnx.external_data_helper import load_external_data_for_model, uses_external_data

from compiler.errors import (
    BuildError,
    FrontendError,
    InputError,
    UnknownShapeError,
    UnsupportedOperatorError,
)
from compiler.relay.frontend.onnx.model import dense_array, require_external_files, tensor_array
from compiler.support.regular_files import open_regular

from .capi.onnxruntime_pybind11_state import InvalidProtobuf, NoSuchFile
from .described import ModelMetadata, NodeArg, Shapes
from .options import TARGETS, SessionOptions, choose_provider, session_of
from .values import type_name

if TYPE_CHECKING:
    from .parts import Part


_NO_VERSION = (1 << 63) - 1
"""onnxruntime's version of a model that has none."""


class OnnxModel:
    """What an `InferenceSession` asks of its model; it says what the arguments are."""

    def __init__(
        self,
        source: bytes | Path,
        options: SessionOptions,
        providers: Sequence[str | tuple[str, Any]] | None,
    ):
        self.provider = choose_provider(providers)
        self._skeleton = skeleton = _read(source, weights=False)
        if options._initializers:
            _replace_initializers(skeleton, options)
            _load_external(skeleton, source)
        self._source = skeleton if options._initializers else source
        self._options = options
        graph = skeleton.graph
        weights = {tensor.name for tensor in graph.initializer}
        weights.update(tensor.values.name for tensor in graph.sparse_initializer)
        named = _denoted(graph.input, options._denotations) | options._dimensions
        self.inputs = [
            _node_arg(value, named) for value in graph.input if value.name not in weights
        ]
        self.outputs = [_node_arg(value, named) for value in graph.output]
        self.about = ModelMetadata(
            skeleton.producer_name,
            graph.name,
            skeleton.domain,
            skeleton.doc_string,
            graph.doc_string,
            skeleton.model_version if skeleton.HasField("model_version") else _NO_VERSION,
            {entry.key: entry.value for entry in skeleton.metadata_props},
        )
        self._built = _Programs(*map(options.limit, ("baton.cached_builds", "baton.cached_bytes")))
        shapes = tuple(tuple(entry.shape) if entry.is_ranked else None for entry in self.inputs)
        self._for_all: _Program | None = None
        if all(
            isinstance(extent, int)
            for shape in shapes
            for extent in ([None] if shape is None else shape)
        ):
            self._program(shapes)  # type: ignore[arg-type]
        elif options.shapes == "symbolic":
            self._for_all = self._make_program(shapes)
        elif options.shapes == "auto":
            self._for_all = self._program_for_all(shapes)

    @property
    def parts(self) -> list[Part]:
        """Return the parts of the kept programs, in build order."""
        programs = [self._for_all] if self._for_all else self._built.kept()
        return [part for program in programs for part in program.parts]

    def run(self, feed: dict[str, Any], shapes: Shapes) -> dict[str, Any]:
        """Values by name, the outputs' among them."""
        return self._program(shapes).run(feed)

    def _program(self, shapes: Shapes) -> _Program:
        if self._for_all:
            return self._for_all
        return self._built.get(shapes, self._make_program)

    def _program_for_all(self, shapes: Sequence[tuple[Any, ...] | None]) -> _Program | None:
        """One program for all shapes; None if the model needs static builds.

        A warning names the operators that Baton can't build for dynamic shapes.
        """
        try:
            program = self._make_program(shapes)
        except (UnsupportedOperatorError, UnknownShapeError, BuildError) as error:
            warnings.warn(
                "the model can't be built for dynamic shapes, so the first request of each new "
                f"combination of shapes waits for a build: {error}",
                stacklevel=6,
            )
            return None
        reasons = [reason for part in program.parts for reason in part.reasons]
        if reasons:
            warnings.warn(
                f"onnxruntime runs {len(reasons)} nodes that Baton can't build for dynamic shapes; "
                f"session.parts lists them. The first: {reasons[0]}",
                stacklevel=6,
            )
        return program

    def _make_program(self, shapes: Sequence[tuple[Any, ...] | None]) -> _Program:
        by_name = {
            entry.name: shape
            for entry, shape in zip(self.inputs, shapes)
            if shape is not None and entry.type.startswith("tensor(")
        }
        target = TARGETS[self.provider]
        return _Program(self._source, self._skeleton, by_name, self._options, target)


class _Programs:
    """The programs of a model by their shapes; those that were used last are kept.

    A program that is dropped while a request runs it is freed when the request is done. One is
    built at a time, while requests for others go on.
    """

    def __init__(self, most: int, most_bytes: int):
        self._most, self._most_bytes = most, most_bytes
        self._programs: dict[Shapes, _Program] = {}
        self._used: dict[Shapes, int] = {}
        self._clock = itertools.count()
        self._lock = threading.Lock()
        self._building = threading.Lock()

    def kept(self) -> list[_Program]:
        """In the order of their building."""
        with self._lock:
            return list(self._programs.values())

    def get(self, shapes: Shapes, build: Callable[[Shapes], _Program]) -> _Program:
        """The program of the shapes, built if it is not kept."""
        found = self._found(shapes)
        if found is not None:
            return found
        with self._building:
            found = self._found(shapes)  # another thread built it
            if found is None:
                found = build(shapes)
                self._keep(shapes, found)
        return found

    def _found(self, shapes: Shapes) -> _Program | None:
        with self._lock:
            found = self._programs.get(shapes)
            if found is not None:
                self._used[shapes] = next(self._clock)
            return found

    def _keep(self, shapes: Shapes, program: _Program) -> None:
        """Keep a new program; drop those that were not used for longest while it is too much."""
        with self._lock:
            self._programs[shapes] = program
            self._used[shapes] = next(self._clock)
            total = sum(each.nbytes for each in self._programs.values())
            while len(self._programs) > 1 and (
                len(self._programs) > self._most or total > self._most_bytes
            ):
                oldest = min(self._used, key=self._used.__getitem__)
                total -= self._programs.pop(oldest).nbytes
                del self._used[oldest]


class _Program:
    """A model at fixed shapes, or at all of them: its parts and what runs each.

    `nbytes`: of weights and intermediate tensors, those of the parts in onnxruntime by their
    models.
    """

    def __init__(
        self,
        source: bytes | Path | onnx.ModelProto,
        skeleton: onnx.ModelProto,
        shapes: Mapping[str, tuple[Any, ...]],
        options: SessionOptions,
        target: str,
    ):
        from .parts import BATON, Part, split

        self._weights: dict[str, Any] = {}
        """Weights that are outputs of a model in parts."""
        self.nbytes = 0
        try:
            outputs = skeleton.graph.output
            for value in outputs:
                if value.type.WhichOneof("value") not in ("tensor_type", None):
                    raise UnsupportedOperatorError(f"the output {value.name!r} is not a tensor")
            run = self._baton(source, shapes, [v.name for v in outputs], options, target)
        except UnsupportedOperatorError as error:
            model = _read(source)
            self._weights = _weights_of(model, {value.name for value in outputs})
            try:
                self.parts = split(model, shapes)
            except ImportError:
                raise UnsupportedOperatorError(
                    f"{error}; where onnxruntime is installed, it runs what Baton can't"
                ) from error
            except UnsupportedOperatorError as refusal:
                raise UnsupportedOperatorError(f"{error}; {refusal}") from error
            self._runs = [
                self._baton(part.model, {}, part.outputs, options, target)
                if part.engine == BATON
                else self._onnxruntime(part.model, options)
                for part in self.parts
            ]
            return
        self.parts = [Part(BATON, skeleton)]
        self._runs = [run]

    def run(self, feed: dict[str, Any]) -> dict[str, Any]:
        """Values of the inputs and of everything that a part hands on."""
        values = {**self._weights, **feed}
        for part, run in zip(self.parts, self._runs):
            values.update(run({name: values[name] for name in part.inputs if name in values}))
        return values

    def _baton(
        self,
        source: bytes | Path | onnx.ModelProto,
        shapes: Mapping[str, tuple[Any, ...]],
        outputs: list[str],
        options: SessionOptions,
        target: str,
    ) -> Run:
        """Build a model with Baton and return the function that runs it."""
        from compiler import PassContext, relay

        mod, params = relay.frontend.from_onnx(source, shape=shapes, freeze_params=False)
        level = options.graph_optimization_level
        with PassContext(opt_level=min(int(level), 3)):
            library = relay.build(mod, target=target, params=params)
        library.ir_mod = None  # it has the weights a second time
        session = session_of(library, options)
        self.nbytes += library.report.weights_bytes
        self.nbytes += library.report.activations_bytes * session.parallel
        # The library has other names where the model lists an output twice.
        return lambda feed: dict(zip(outputs, session.run(feed).values()))

    def _onnxruntime(self, model: onnx.ModelProto, options: SessionOptions) -> Run:
        """Load a model in onnxruntime and return the function that runs it."""
        import onnxruntime

        theirs = onnxruntime.SessionOptions()
        theirs.intra_op_num_threads = options.intra_op_num_threads
        serialized = model.SerializeToString()
        session = onnxruntime.InferenceSession(
            serialized, theirs, providers=["CPUExecutionProvider"]
        )
        self.nbytes += len(serialized)
        names = [value.name for value in model.graph.output]
        return lambda feed: dict(zip(names, session.run(names, feed)))


Run = Callable[[dict[str, Any]], dict[str, Any]]


def _weights_of(model: onnx.ModelProto, names: set[str]) -> dict[str, Any]:
    """Values of the initializers of these names."""
    graph = model.graph
    dense = {
        tensor.name: tensor_array(tensor) for tensor in graph.initializer if tensor.name in names
    }
    sparse = {
        tensor.values.name: dense_array(tensor)
        for tensor in graph.sparse_initializer
        if tensor.values.name in names
    }
    return dense | sparse


def _read(source: bytes | Path | onnx.ModelProto, weights: bool = True) -> onnx.ModelProto:
    """A model, without what lies in other files unless `weights`."""
    if isinstance(source, onnx.ModelProto):
        return source
    try:
        if isinstance(source, bytes):
            return onnx.load_from_string(source)
        with open_regular(source) as file:
            model = onnx.load(file, load_external_data=False)
        if weights:
            _load_external(model, source)
        return model
    except OSError as error:
        kind = NoSuchFile if isinstance(error, FileNotFoundError) else FrontendError
        raise kind(f"can't read the ONNX model {source!s}: {error.strerror}") from error
    except Exception as error:
        what = str(source) if isinstance(source, Path) else f"{len(source)} bytes"
        raise InvalidProtobuf(f"{what} is not an ONNX model, or is damaged: {error!s}") from error


def _load_external(model: onnx.ModelProto, source: bytes | Path) -> None:
    """Read the weights that a model keeps in other files of its folder."""
    if isinstance(source, Path):
        require_external_files(model, source.parent)
        load_external_data_for_model(model, str(source.parent))


def _replace_initializers(model: onnx.ModelProto, options: SessionOptions) -> None:
    """Put the values of the options in the place of a model's initializers."""
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    for name, array in options._initializers.items():
        if name not in tensors:
            raise InputError(f"the model has no initializer {name!r}")
        old, new = tensors[name], onnx.numpy_helper.from_array(array, name)
        if (old.data_type, *old.dims) != (new.data_type, *new.dims):
            declared = onnx.helper.tensor_dtype_to_np_dtype(old.data_type)
            raise InputError(
                f"initializer {name!r} is {declared}{list(old.dims)}; the value is "
                f"{array.dtype}{list(array.shape)}"
            )
        if name in options._external and not uses_external_data(old):
            raise InputError(
                f"the data of initializer {name!r} is in the model; use add_initializer"
            )
        old.CopyFrom(new)


def _denoted(inputs: Sequence[onnx.ValueInfoProto], extents: Mapping[str, int]) -> dict[str, int]:
    """Extents of the named dimensions that have these denotations; unnamed ones get theirs."""
    named = {}
    for value in inputs:
        for dim in value.type.tensor_type.shape.dim:
            if dim.denotation in extents and dim.dim_param:
                named[dim.dim_param] = extents[dim.denotation]
            elif dim.denotation in extents and not dim.HasField("dim_value"):
                dim.dim_value = extents[dim.denotation]
    return named


def _node_arg(value: onnx.ValueInfoProto, named: Mapping[str, int]) -> NodeArg:
    """An input or output as the model declares it; dimensions of a given name have its extent."""
    kind = value.type
    while kind.HasField("optional_type"):
        kind = kind.optional_type.elem_type
    tensor = kind.tensor_type
    shape: list[int | str | None] = [
        dim.dim_value
        if dim.HasField("dim_value")
        else named.get(dim.dim_param, dim.dim_param)
        if dim.dim_param
        else None
        for dim in tensor.shape.dim
    ]
    is_ranked = tensor.HasField("shape") or not kind.HasField("tensor_type")
    return NodeArg(value.name, shape, _type_text(value.type), is_ranked)


def _type_text(kind: onnx.TypeProto) -> str:
    """onnxruntime's name of a type, for example "seq(tensor(float))"."""
    if kind.HasField("sequence_type"):
        return f"seq({_type_text(kind.sequence_type.elem_type)})"
    if kind.HasField("optional_type"):
        return f"optional({_type_text(kind.optional_type.elem_type)})"
    if not kind.HasField("tensor_type"):
        return f"{str(kind.WhichOneof('value')).removesuffix('_type')}(...)"
    if kind.tensor_type.elem_type == onnx.TensorProto.STRING:
        return "tensor(string)"
    return type_name(onnx.helper.tensor_dtype_to_np_dtype(kind.tensor_type.elem_type))
