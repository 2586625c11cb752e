"""`InferenceSession`: an ONNX model or an exported library, by onnxruntime's names."""

from __future__ import annotations

import importlib.util
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler.errors import FrontendError, InputError
from compiler.runtime.extents import require_equal_symbols, require_shape
from compiler.runtime.metadata import TensorInfo, listed
from compiler.runtime.tensors import array_of

from .described import ModelMetadata, NodeArg
from .libraries import SUFFIXES, Library
from .names import KnownNames, without_effect
from .options import RunOptions, SessionOptions
from .profiling import Profiling
from .values import IOBinding, OrtValue, arrays_of, dtype_name

if TYPE_CHECKING:
    from .onnx_models import OnnxModel
    from .parts import Part


class InferenceSession(KnownNames):
    """A model that runs on arrays by name.

    An exported library runs unchanged, and needs only the runtime. The constructor builds an ONNX
    model once for all its shapes. If Baton can't build it for dynamic shapes, a warning says why,
    and the first request of each new combination of shapes waits for a build; the most recently
    used builds stay in memory (`SessionOptions.add_session_config_entry`). The session
    configuration "baton.shapes" = "static" selects such builds.

    Parameters
    ----------
    path_or_bytes : str, path or bytes
        An ONNX model, or the path of a library, `.so` or `.tar`, of `export_library`.
    sess_options : SessionOptions, optional
    providers : sequence, optional
        "CPUExecutionProvider" or "CUDAExecutionProvider"; the first available one is used, with a
        warning for those before it. By default the GPU, if the machine has one. A library runs
        on the device that it was built for.
    provider_options, disabled_optimizers, enable_fallback
        Accepted without effect.

    Raises
    ------
    FrontendError
        The ONNX model can't be read, or only Baton's runtime is installed.
    LoadError
        The library can't be loaded.
    UnsupportedOperatorError
        Baton can't build the whole model, and onnxruntime is not installed.
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
        unknown = sorted(set(kwargs) - {"disabled_optimizers", "enable_fallback"})
        if unknown:
            raise InputError(f"InferenceSession has no option {unknown[0]!r}")
        options = sess_options or SessionOptions()
        options.require_possible()
        self._profiling = Profiling() if options.enable_profiling else None
        self._options = replace(options, _profiling=self._profiling)
        self._source = path_or_bytes if isinstance(path_or_bytes, bytes) else Path(path_or_bytes)
        self.set_providers(providers)

    @property
    def parts(self) -> list[Part]:
        """Parts of the programs that were built of an ONNX model, in the order of their building.

        One part of Baton's is a model that it runs whole; a library has none.
        """
        return self._model.parts

    def get_inputs(self) -> list[NodeArg]:
        """Inputs, in the model's order."""
        return list(self._model.inputs)

    def get_outputs(self) -> list[NodeArg]:
        """Outputs, in the model's order."""
        return list(self._model.outputs)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """None: weights are packed by the build."""
        return []

    def get_modelmeta(self) -> ModelMetadata:
        """Return the model metadata."""
        return self._model.about

    def get_session_options(self) -> SessionOptions:
        """The session's options."""
        return self._options

    def get_providers(self) -> list[str]:
        """The provider in use."""
        return [self._model.provider]

    def set_providers(
        self,
        providers: Sequence[str | tuple[str, Any]] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Load the model again with other providers; arguments and errors as the constructor's."""
        with self._span("session_initialization"):
            self._model = _opened(self._source, self._options, providers)

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """No options of the provider in use."""
        return {name: {} for name in self.get_providers()}

    disable_fallback = without_effect("InferenceSession.disable_fallback")
    enable_fallback = without_effect("InferenceSession.enable_fallback")

    def end_profiling(self) -> str:
        """Write the times since the session was made as a Chrome trace, which Perfetto opens.

        It is a list of events, as onnxruntime writes it: the runs, and each kernel's calls with
        its operators and nodes. Returns the path, or "" where nothing is recorded: without
        `SessionOptions.enable_profiling`, and after the first call.

        Raises
        ------
        ExportError
            The file can't be written.
        """
        if self._profiling is None or not self._profiling.is_on:
            return ""
        return self._profiling.write(self._options.profile_file_prefix, *self.get_providers())

    def get_profiling_start_time_ns(self) -> int:
        """When profiling began, in nanoseconds since 1970; 0 without `enable_profiling`."""
        return self._profiling.start_ns if self._profiling else 0

    def _span(self, name: str) -> AbstractContextManager[None]:
        return self._profiling.span(name) if self._profiling else nullcontext()

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
            Outputs to compute; all if None or empty.
        input_feed : dict of str to array_like
            A value for each input, of its shape and dtype; lists of numbers are converted.
        run_options : RunOptions, optional

        Returns
        -------
        results : list of numpy.ndarray
            In the order of `output_names`, of the outputs' shapes and dtypes.

        Raises
        ------
        InputError
            An input is missing, unknown or of another dtype, rank or shape; an output does not
            exist; or `run_options.terminate` is set.
        """
        if run_options is not None and run_options.terminate:
            raise InputError("the run ends before it starts: RunOptions.terminate is set")
        feed = self._checked(arrays_of(input_feed))
        known = [entry.name for entry in self._model.outputs]
        names = list(output_names or known)
        for name in names:
            if name not in known:
                raise InputError(f"there is no output {name!r}; there are {listed(known)}")
        shapes = tuple(getattr(feed[entry.name], "shape", ()) for entry in self._model.inputs)
        with self._span("model_run"):
            values = self._model.run(feed, shapes)
        return [values[name] for name in names]

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """As `run`, on values."""
        results = self.run(output_names, input_dict_ort_values, run_options)
        return [OrtValue(array) for array in results]

    def run_with_iobinding(
        self, iobinding: IOBinding, run_options: RunOptions | None = None
    ) -> None:
        """Run on what is bound."""
        iobinding.run(run_options)

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
                results, message = self.run(output_names, input_feed, run_options), ""
            except Exception as error:
                results, message = [], str(error) or type(error).__name__
            callback(results, user_data, message)

        threading.Thread(target=work, name="baton-run-async").start()

    def _checked(self, feed: dict[str, Any]) -> dict[str, Any]:
        inputs = self._model.inputs
        names = {entry.name for entry in inputs}
        if set(feed) != names:
            raise InputError(
                f"the model's inputs are {listed(inputs)}; missing: "
                f"{listed(sorted(names - set(feed)))}; unknown: {listed(sorted(set(feed) - names))}"
            )
        values = dict(feed)
        symbols: list[tuple[str, int, str, int]] = []
        for entry in inputs:
            if not entry.type.startswith("tensor("):
                continue  # onnxruntime checks sequences and optional values
            what, value = f"input {entry.name!r}", feed[entry.name]
            if entry.type == "tensor(string)":
                array = np.asarray(value)
            else:
                array = array_of(value, TensorInfo(entry.name, (), dtype_name(entry.type)))
            values[entry.name] = array
            if entry.is_ranked:
                declared = ["?" if extent is None else extent for extent in entry.shape]
                require_shape(what, array.shape, declared, {})
            symbols += [
                (what, axis, symbol, extent)
                for axis, (symbol, extent) in enumerate(zip(entry.shape, array.shape))
                if isinstance(symbol, str)
            ]
        require_equal_symbols(symbols)
        return values


def _opened(
    source: bytes | Path, options: SessionOptions, providers: Sequence[str | tuple[str, Any]] | None
) -> OnnxModel | Library:
    if isinstance(source, Path) and source.suffix in SUFFIXES:
        return Library(source, options, providers)
    if importlib.util.find_spec("compiler.relay") is None:
        raise FrontendError(
            "baton-runtime runs libraries, .so or .tar, and has no compiler; compile the ONNX "
            "model where baton-tvm is installed: baton compile model.onnx -o model.so"
        )
    from .onnx_models import OnnxModel

    return OnnxModel(source, options, providers)
