"""`InferenceSession`: an ONNX model, built when its shapes are known, by onnxruntime's names."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from compiler.errors import FrontendError, InputError, UnsupportedOperatorError
from compiler.runtime.session import default_threads

from .options import TARGETS, RunOptions, SessionOptions, choose_provider
from .values import IOBinding, OrtValue, arrays_of, type_name

if TYPE_CHECKING:
    from .parts import Part

Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class NodeArg:
    """An input or output of a model.

    Attributes
    ----------
    name : str
    shape : list
        Extents: an int, the name of an open one, or None.
    type : str
        For example "tensor(float)".
    """

    name: str
    shape: list[int | str | None]
    type: str


@dataclass(frozen=True)
class ModelMetadata:
    """What a model says about itself."""

    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata_map: dict[str, str] = field(default_factory=dict)


class InferenceSession:
    """An ONNX model that runs on arrays by name.

    A model whose inputs have fixed shapes is built at once. One with open dimensions is built for
    each combination of shapes that it meets, at the first request that has it; what was built
    before stays in memory and, as every build, in the kernel cache. With the session
    configuration "baton.shapes" = "symbolic" it is built at once for all shapes, as one library.

    Parameters
    ----------
    path_or_bytes : str, path or bytes
        An ONNX model.
    sess_options : SessionOptions, optional
    providers : sequence, optional
        "CPUExecutionProvider" or "CUDAExecutionProvider"; the first that is here is taken, with a
        warning for those before it. By default the GPU where there is one.
    provider_options : sequence, optional
        Accepted without effect.

    Raises
    ------
    FrontendError
        The model can't be read.
    UnsupportedOperatorError
        Baton can't build it whole, and onnxruntime is not installed.
    TargetError
        No provider is available.
    """

    def __init__(
        self,
        path_or_bytes: str | os.PathLike[str] | bytes,
        sess_options: SessionOptions | None = None,
        providers: Sequence[str | tuple[str, Any]] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        **kwargs: Any,
    ):
        if kwargs:
            raise InputError(f"InferenceSession has no option {sorted(kwargs)[0]!r}")
        self._options = sess_options or SessionOptions()
        self._options.require_possible()
        self._provider = choose_provider(providers)
        self._source = path_or_bytes if isinstance(path_or_bytes, bytes) else Path(path_or_bytes)
        skeleton = _read(self._source, weights=False)
        graph = skeleton.graph
        weights = {tensor.name for tensor in graph.initializer}
        named = self._options._dimensions
        self._inputs = [
            _node_arg(value, named) for value in graph.input if value.name not in weights
        ]
        self._outputs = [_node_arg(value, named) for value in graph.output]
        self._about = ModelMetadata(
            skeleton.producer_name,
            graph.name,
            skeleton.domain,
            skeleton.doc_string,
            graph.doc_string,
            skeleton.model_version,
            {entry.key: entry.value for entry in skeleton.metadata_props},
        )
        self._built: dict[Shapes, _Program] = {}
        self._lock = threading.Lock()
        shapes = tuple(tuple(entry.shape) for entry in self._inputs)
        self._for_all: _Program | None = None
        if all(isinstance(extent, int) for shape in shapes for extent in shape):
            self._program(shapes)  # type: ignore[arg-type]
        elif self._options.shapes == "symbolic":
            by_name = {entry.name: tuple(entry.shape) for entry in self._inputs}
            self._for_all = _Program(self._source, by_name, self._options, TARGETS[self._provider])

    @property
    def parts(self) -> list[Part]:
        """Parts of the programs that were built, in the order of their building.

        One part of Baton's is a model that it runs whole.
        """
        programs = [self._for_all] if self._for_all else self._built.values()
        return [part for program in programs for part in program.parts]

    def get_inputs(self) -> list[NodeArg]:
        """Inputs, in the model's order."""
        return list(self._inputs)

    def get_outputs(self) -> list[NodeArg]:
        """Outputs, in the model's order."""
        return list(self._outputs)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """None: weights are packed by the build."""
        return []

    def get_modelmeta(self) -> ModelMetadata:
        """What the model says about itself."""
        return self._about

    def get_session_options(self) -> SessionOptions:
        """The session's options."""
        return self._options

    def get_providers(self) -> list[str]:
        """The provider in use."""
        return [self._provider]

    def io_binding(self) -> IOBinding:
        """Arrays to bind to inputs and outputs."""
        return IOBinding(self)

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> list[Any]:
        """Compute outputs; may be called from any number of threads.

        Parameters
        ----------
        output_names : sequence of str or None
            Which; all where it is None or empty.
        input_feed : dict of str to array_like
            A value of each input, of its dtype.

        Returns
        -------
        results : list of numpy.ndarray

        Raises
        ------
        InputError
            An input is missing, unknown or of another dtype, rank or extent, or there is no such
            output.
        """
        feed = self._checked(arrays_of(input_feed))
        known = [entry.name for entry in self._outputs]
        names = list(output_names or known)
        for name in names:
            if name not in known:
                raise InputError(f"there is no output {name!r}; there are {', '.join(known)}")
        shapes = tuple(np.shape(feed[entry.name]) for entry in self._inputs)
        values = self._program(shapes).run(feed)
        return [values[name] for name in names]

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """As `run`, on values."""
        return [OrtValue(array) for array in self.run(output_names, input_dict_ort_values)]

    def run_with_iobinding(
        self, iobinding: IOBinding, run_options: RunOptions | None = None
    ) -> None:
        """Run on what is bound."""
        iobinding.run()

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[list[Any], Any, str], None],
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """As `run` in a thread, then `callback(results, user_data, message)`.

        The message is empty, or that of the error; then there are no results.
        """

        def work() -> None:
            try:
                results, message = self.run(output_names, input_feed), ""
            except Exception as error:
                results, message = [], str(error) or type(error).__name__
            callback(results, user_data, message)

        threading.Thread(target=work, name="baton-run-async").start()

    def _checked(self, feed: dict[str, Any]) -> dict[str, np.ndarray]:
        names = {entry.name for entry in self._inputs}
        if set(feed) != names:
            raise InputError(
                f"the model's inputs are {', '.join(sorted(names)) or 'none'}; missing: "
                f"{sorted(names - set(feed))}, unknown: {sorted(set(feed) - names)}"
            )
        arrays = {name: np.asarray(value) for name, value in feed.items()}
        extents: dict[str, int] = {}
        for entry in self._inputs:
            array = arrays[entry.name]
            given = f"input {entry.name!r} is {entry.type}{entry.shape}; given is {array.dtype}"
            of_type = type_name(array.dtype) == entry.type or entry.type == "tensor(string)"
            if not of_type or array.ndim != len(entry.shape):
                raise InputError(f"{given}{list(array.shape)}")
            for wanted, extent in zip(entry.shape, array.shape):
                if isinstance(wanted, str):
                    wanted = extents.setdefault(wanted, extent)
                if wanted is not None and wanted != extent:
                    raise InputError(f"{given}{list(array.shape)}: {extent} is not {wanted}")
        return arrays

    def _program(self, shapes: Shapes) -> _Program:
        if self._for_all:
            return self._for_all
        with self._lock:
            if shapes not in self._built:
                by_name = {entry.name: shape for entry, shape in zip(self._inputs, shapes)}
                self._built[shapes] = _Program(
                    self._source, by_name, self._options, TARGETS[self._provider]
                )
            return self._built[shapes]


class _Program:
    """A model at fixed shapes, or at all of them: its parts and what runs each."""

    def __init__(
        self,
        source: bytes | Path,
        shapes: Mapping[str, tuple[Any, ...]],
        options: SessionOptions,
        target: str,
    ):
        from .parts import BATON, Part, split

        self._weights: dict[str, Any] = {}
        """Weights that are outputs of a model in parts."""
        try:
            run = _built(source, shapes, options, target)
        except UnsupportedOperatorError as error:
            if options.shapes == "symbolic":
                raise
            model = _read(source)
            outputs = {value.name for value in model.graph.output}
            self._weights = {
                tensor.name: onnx.numpy_helper.to_array(tensor)
                for tensor in model.graph.initializer
                if tensor.name in outputs
            }
            try:
                self.parts = split(model, shapes)
            except ImportError:
                raise UnsupportedOperatorError(
                    f"{error}; where onnxruntime is installed, it runs what Baton can't"
                ) from error
            self._runs = [
                _built(part.model, {}, options, target)
                if part.engine == BATON
                else _foreign(part.model, options)
                for part in self.parts
            ]
            return
        self.parts = [Part(BATON, _read(source, weights=False))]
        self._runs = [run]

    def run(self, feed: dict[str, Any]) -> dict[str, Any]:
        """Values of the inputs and of everything that a part hands on."""
        values = {**self._weights, **feed}
        for part, run in zip(self.parts, self._runs):
            values.update(run({name: values[name] for name in part.inputs if name in values}))
        return values


Run = Callable[[dict[str, Any]], dict[str, Any]]


def _built(
    source: bytes | Path | onnx.ModelProto,
    shapes: Mapping[str, tuple[Any, ...]],
    options: SessionOptions,
    target: str,
) -> Run:
    """What runs a model that Baton builds."""
    from compiler import PassContext, relay

    mod, params = relay.frontend.from_onnx(source, shape=shapes, freeze_params=False)
    level = options.graph_optimization_level
    with PassContext(opt_level=min(int(level), 3)):
        library = relay.build(mod, target=target, params=params)
    threads = options.intra_op_num_threads or default_threads()
    return library.session(num_threads=threads, parallel=max(1, default_threads() // threads)).run


def _foreign(model: onnx.ModelProto, options: SessionOptions) -> Run:
    """What runs a model in onnxruntime."""
    import onnxruntime

    theirs = onnxruntime.SessionOptions()
    theirs.intra_op_num_threads = options.intra_op_num_threads
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), theirs, providers=["CPUExecutionProvider"]
    )
    names = [value.name for value in model.graph.output]
    return lambda feed: dict(zip(names, session.run(names, feed)))


def _read(source: bytes | Path, weights: bool = True) -> onnx.ModelProto:
    """A model, without what lies in other files unless `weights`."""
    try:
        if isinstance(source, bytes):
            return onnx.load_from_string(source)
        return onnx.load(source, load_external_data=weights)
    except OSError as error:
        raise FrontendError(f"can't read the ONNX model {source!s}: {error.strerror}") from error
    except Exception as error:
        what = str(source) if isinstance(source, Path) else f"{len(source)} bytes"
        raise FrontendError(f"{what} is not an ONNX model, or is damaged: {error!s}") from error


def _node_arg(value: onnx.ValueInfoProto, named: Mapping[str, int]) -> NodeArg:
    """An input or output as the model declares it; dimensions of a given name have its extent."""
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        return NodeArg(value.name, [], f"{str(kind).removesuffix('_type')}(...)")
    tensor = value.type.tensor_type
    shape: list[int | str | None] = [
        dim.dim_value
        if dim.HasField("dim_value")
        else named.get(dim.dim_param, dim.dim_param)
        if dim.dim_param
        else None
        for dim in tensor.shape.dim
    ]
    if tensor.elem_type == onnx.TensorProto.STRING:
        return NodeArg(value.name, shape, "tensor(string)")
    return NodeArg(
        value.name, shape, type_name(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    )
