"""The executor behind `lib["default"](dev)`: named inputs, weights and outputs of one VM.

Each executor owns one Relax virtual machine and the buffers of its inputs. Inputs and weights
are bound to `main` once, as a function "run" without arguments, so that a call neither looks
names up nor hands over hundreds of weights; it is bound anew only when a tensor is exchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from compiler.errors import BuildError, DivisionByZeroError, IndexRangeError, InputError
from compiler.runtime import cuda_code, forks
from compiler.runtime.bound_memory import BoundMemory
from compiler.runtime.entry import GRAPH_ENTRY, fastest
from compiler.runtime.extents import require_equal_symbols, require_shape
from compiler.runtime.host import kind_of
from compiler.runtime.kv_cache import KVCache
from compiler.runtime.metadata import ALIGNMENT, Metadata, TensorInfo, listed
from compiler.runtime.tensors import (
    as_array,
    compact,
    copy_into,
    fits_kernels,
    numpy_dtype,
    require_convertible,
)
from compiler.runtime.thread_use import ThreadUse
from compiler.tvm_workarounds.fast_import import tvm, tvm_ffi

for _error in (
    DivisionByZeroError,
    IndexRangeError,
    InputError,
):  # that kernels raise, by these names
    tvm_ffi.register_error(_error)

_FUNCTIONS = (
    "set_input",
    "set_input_zero_copy",
    "get_input",
    "get_input_index",
    "get_input_info",
    "get_output_info",
    "get_num_inputs",
    "get_num_outputs",
    "get_output",
    "run",
    "load_params",
    "share_params",
)


class GraphExecutor:
    """Runs one library on one set of devices.

    Every method may be called from any thread; calls on one executor are done one after the
    other. Where another thread sets an input between this one's `set_input` and `run`, or runs
    between its `run` and `get_output`, the second of these calls raises InputError. Executors of
    one library are independent of each other and share the weights.

    `code`: the runnable VM executable. `devices`: in the order of `metadata.devices`. `params`:
    weights on their devices. Weights that are missing must be set before `run`.
    Raises BuildError: the metadata do not describe the executable.
    """

    _timed: tuple[str, ...] = ("run",)
    """The virtual machine's function that a timer calls once `_prepare` was, and its arguments."""

    def __init__(
        self, code: Any, metadata: Metadata, devices: Sequence[Any], params: Mapping[str, Any]
    ) -> None:
        self.metadata = metadata
        self.devices = list(devices)
        self._lock = forks.ForkSafeLock()
        self._use = ThreadUse()
        self._infos: tuple[TensorInfo, ...] = (*metadata.inputs, *metadata.params)
        self._index = {info.name: index for index, info in enumerate(self._infos)}
        self._device_of = {kind_of(device): device for device in (tvm.cpu(0), *self.devices)}
        if "cuda" in metadata.devices:
            cuda_code.register()
        self._code = code
        self._vm = tvm.runtime.vm.VirtualMachine(code, list(self.devices))
        self._function = fastest(self._vm.module)
        self._has_graphs = False
        arity = self._vm.module["get_function_arity"]("main")
        if arity != len(self._infos):
            raise BuildError(
                f"library {metadata.mod_name!r}: its main takes {arity} tensors, but its metadata "
                f"describe {len(metadata.inputs)} inputs and {len(metadata.params)} weights"
            )
        self._buffers: list[Any] = [None] * arity  # what set_input copies into
        self._views: list[Any] = [None] * arity  # the buffers as numpy arrays, where possible
        self._bound: list[Any] = [params.get(info.name) for info in self._infos]
        self._memory = BoundMemory(self._bound)
        self._what = [f"input {info.name!r}" for info in self._infos]
        self._symbolic = [
            (index, axis, extent)
            for index, info in enumerate(metadata.inputs)
            for axis, extent in enumerate(info.shape)
            if isinstance(extent, str)
        ]
        self._run: Callable[[], Any] | None = None
        self._outputs: list[Any] | None = None
        self._kv_cache: KVCache | None = None
        self._reserved: frozenset[str] = frozenset()  # inputs that the cache is bound to

    def __getitem__(self, name: str) -> Callable[..., Any]:
        """The function of that name, as the executor module of old had them."""
        if name not in _FUNCTIONS:
            raise InputError(f"an executor has no function {name!r}; it has {_FUNCTIONS}")
        return getattr(self, name)

    def set_input(
        self, key: str | int | Mapping[str, Any] | None = None, value: Any = None, **inputs: Any
    ) -> None:
        """Copy values into inputs.

        `key`: name or index of one input, or a dict of several. `value`: a numpy array, TVM tensor
        on any device, list or number, of exactly the input's shape. Another dtype is converted,
        unless that would turn fractions into integers, complex numbers into real ones, or integers
        into others that fit the dtype. `**inputs`: further values by name. Names of weights that
        were bound at build time are ignored.
        Raises InputError: unknown name or index, wrong shape, or a dtype that can't be converted.
        """
        with self._lock:
            if isinstance(key, Mapping):
                inputs = {**key, **inputs}
            elif key is not None:
                self._copy_in(self._settable(key), value)
            for name, item in inputs.items():
                if name in self._index or name not in self.metadata.bound_params:
                    self._copy_in(self._settable(name), item)

    def set_instrument(self, instrument: Callable[..., int]) -> None:
        """Have a function called around each call that the virtual machine makes, for good.

        `instrument`: gets the callee, its symbol, whether this is before the call, the result
        (after the call), and the arguments; returns 0 to go on.
        """
        with self._lock:
            self._function, self._run = "main", None  # a graph hides its calls
            self._vm.set_instrument(instrument)

    def set_input_zero_copy(self, key: str | int, value: Any) -> None:
        """Use the caller's tensor itself as an input; later changes to it are seen by `run`.

        A later `set_input` of the same input goes back to a buffer of the executor's own.

        `value`: on the input's device, contiguous, aligned to 64 bytes, of its shape and dtype.
        Raises InputError: one of these does not hold.
        """
        with self._lock:
            index = self._settable(key)
            info = self._infos[index]
            if not isinstance(value, tvm.runtime.Tensor):
                try:
                    value = tvm.runtime.from_dlpack(value)
                except Exception as error:
                    raise InputError(
                        f"can't use {type(value).__name__} as input {info.name!r} without a copy "
                        f"({error}); it must be contiguous and aligned to {ALIGNMENT} bytes"
                    ) from error
            self._require_shape(index, tuple(value.shape))
            device = self._device(info)
            if str(value.dtype) != info.dtype or value.device != device:
                raise InputError(
                    f"input {info.name!r} without a copy must be {info.dtype} on {device}, not "
                    f"{value.dtype} on {value.device}"
                )
            if not fits_kernels(value):
                raise InputError(
                    f"input {info.name!r} without a copy must be contiguous and aligned to "
                    f"{ALIGNMENT} bytes, and be no view with a byte offset"
                )
            self._use.note_set(index)
            self._bind(index, value)

    def make_kv_cache(self) -> KVCache:
        """An empty cache of keys and values for this library.

        Raises InputError: the library keeps none.
        """
        return KVCache(self.metadata, self.devices[0])

    def use_kv_cache(self, cache: KVCache) -> None:
        """Have runs add rows to a cache, and go on behind those that are there.

        Raises InputError: the cache is of another library.
        """
        with self._lock:
            if cache is self._kv_cache:
                return
            cache.require_fits(self.metadata)
            for name, tensor in cache.tensors.items():
                self._bind(self._index[name], tensor)
            self._kv_cache = cache
            self._reserved = frozenset((cache.info.rows, *cache.tensors))

    def run(self, **inputs: Any) -> None:
        """Set the given inputs, then compute the outputs; add rows to the cache that is used.

        Raises InputError: as in `set_input`, or an input has never been set, or another thread has
        set one since this thread did.
        """
        with self._lock:
            if inputs:
                self.set_input(**inputs)
            self._use.note_run(self._infos)
            cache = self._kv_cache
            with nullcontext() if cache is None else cache.lock:
                rows = 0 if cache is None else self._place_rows(cache)
                function = self._run or self._prepare()
                forks.note_kernels()
                self._outputs = None  # gives the memory back before the next outputs take it
                try:
                    results = function()
                except RuntimeError as error:
                    if "match_cast" not in str(error):
                        raise
                    raise InputError(f"shapes of inputs do not fit each other: {error}") from error
                outputs = [self._own(tensor) for tensor in _flatten(results)]
                if len(outputs) != len(self.metadata.outputs):
                    raise InputError(
                        f"the library has {len(outputs)} outputs, and its graph describes "
                        f"{len(self.metadata.outputs)}; take both from one build"
                    )
                self._outputs = outputs
                if cache is not None:
                    cache.note_run(rows)

    def get_output(self, index: int, out: Any = None) -> Any:
        """The result of the last run.

        `out`: copied into, and returned, when given. The tensor belongs to the caller: no later run
        changes it, and writing to it changes no weight.
        Raises InputError: no such output, nothing has been run yet, `out` does not fit, or another
        thread has run since this thread did.
        """
        with self._lock:
            count = len(self.metadata.outputs)
            if isinstance(index, bool) or not isinstance(index, (int, np.integer)):
                raise InputError(f"an output's index must be an int, not {index!r:.60}")
            if not 0 <= index < count:
                outputs = listed(self.metadata.outputs)
                raise InputError(f"no output {index}; there are {count}: {outputs}")
            self._use.require_own_run()
            if self._outputs is None:
                raise InputError("there is no output before the first run(); call run() first")
            result = self._outputs[index]
            if out is not None:
                return copy_into(result, out, f"output {self.metadata.outputs[index]}")
            return result

    def get_input(self, key: str | int) -> Any:
        """The tensor that is bound to an input or weight, None if it has not been set.

        Raises InputError: unknown name or index.
        """
        with self._lock:
            return self._bound[self._position(key)]

    def get_num_inputs(self) -> int:
        """The number of inputs and weights."""
        return len(self._infos)

    def get_num_outputs(self) -> int:
        """The number of outputs, those inside of tuples counted one by one."""
        return len(self.metadata.outputs)

    def get_input_index(self, name: str) -> int:
        """The index of an input or weight, -1 if there is none of that name."""
        return self._index.get(name, -1)

    def get_input_info(self) -> tuple[dict[str, tuple[int | str, ...]], dict[str, str]]:
        """Shapes by name and dtypes by name, inputs first, then weights.

        An extent that is a string is a symbol, which running the model tells; `metadata.bounds`
        has the largest extents that symbols may have.
        """
        return _tables(self._infos)

    def get_output_info(self) -> tuple[dict[str, tuple[int | str, ...]], dict[str, str]]:
        """Shapes by name and dtypes by name of the outputs; -1 is an extent that run() decides."""
        return _tables(self.metadata.outputs)

    def load_params(self, params_bytes: bytes | bytearray) -> None:
        """Set inputs and weights from what `tvm.runtime.save_param_dict` wrote.

        Names that the library does not have are skipped, as they always were.

        Raises InputError: the bytes are not such a dict, or a value has the wrong shape.
        """
        with self._lock:
            for name, value in parse_params(params_bytes).items():
                if name in self._index:
                    self._copy_in(self._index[name], value)

    def share_params(self, other: GraphExecutor, params_bytes: bytes | bytearray) -> None:
        """Use another executor's tensors for the names that a saved dict of weights lists.

        `other`: on the same devices. `params_bytes`: what `tvm.runtime.save_param_dict` wrote; only
        its names are used.
        Raises InputError: the bytes are not such a dict, or a tensor does not fit.
        """
        names = [name for name in parse_params(params_bytes) if name in self._index]
        shared = {name: other.get_input(name) for name in names}
        for name, tensor in shared.items():
            if tensor is None:
                raise InputError(f"can't share {name!r}: the other executor has not set it")
            self.set_input_zero_copy(name, tensor)

    def time_evaluator(
        self,
        func_name: str,
        dev: Any,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: int = 0,
        **kwargs: Any,
    ) -> Callable[[], Any]:
        """A function that times runs with the inputs as they are set when it is called.

        `func_name`: "run". `dev`: the device to wait for. `number`, `repeat`, `min_repeat_ms`,
        `**kwargs`: as for TVM's `Module.time_evaluator`. It returns a
        `tvm.runtime.module.BenchmarkResult`, in seconds per run.
        """
        if func_name != "run":
            raise InputError(f"only 'run' can be timed, not {func_name!r}")

        def evaluate() -> Any:
            with self._lock:
                if self._run is None:
                    self._prepare()
                forks.note_kernels()
                function, *arguments = self._timed
                timed = self._vm.module.time_evaluator(
                    function,
                    dev,
                    number=number,
                    repeat=repeat,
                    min_repeat_ms=min_repeat_ms or 0,
                    **kwargs,
                )
                return timed(*arguments)

        return evaluate

    def _own(self, result: Any) -> Any:
        """The result, copied if it is an input, a weight or a view of one.

        The caller may write to it, and later runs change the inputs.
        """
        return result.copyto(result.device) if self._memory.holds(result) else result

    def _place_rows(self, cache: KVCache) -> int:
        """Say which rows are there; returns how many will come."""
        rows = cache.info.grows_by
        if isinstance(rows, str):
            position, axis = next(
                (index, axis) for index, axis, symbol in self._symbolic if symbol == rows
            )
            tensor = self._bound[position]
            rows = 0 if tensor is None else int(tensor.shape[axis])
        cache.require_room(rows)
        device, index = self.devices[0], self._index[cache.info.rows]
        self._bind(index, tvm.runtime.empty((cache.length,), "int8", device))
        return rows

    def _require_all_set(self) -> None:
        missing = [
            info for info, value in zip(self._infos, self._bound, strict=True) if value is None
        ]
        if missing:
            raise InputError("run() needs inputs that have not been set: " + listed(missing))

    def _prepare(self) -> Callable[[], Any]:
        """Bind the tensors to `main`, or its graph, as the VM's function "run"."""
        self._require_all_set()
        require_equal_symbols(
            (self._what[index], axis, symbol, int(self._bound[index].shape[axis]))
            for index, axis, symbol in self._symbolic
        )
        self._vm.module["save_function"](self._function, "run", 1, *self._bound)
        self._run = self._vm.module["run"]
        self._has_graphs = self._function == GRAPH_ENTRY
        return self._run

    def _bind(self, index: int, tensor: Any) -> None:
        if self._bound[index] is not tensor:
            if self._has_graphs and index >= len(self.metadata.inputs):
                # They have the addresses of the weights before.
                self._vm = tvm.runtime.vm.VirtualMachine(self._code, list(self.devices))
                self._has_graphs = False
            self._bound[index] = tensor
            self._memory.bind(index, tensor)
            self._run = None

    def _copy_in(self, index: int, value: Any) -> None:
        """Copy a value into the executor's own buffer of an input, and bind that."""
        self._use.note_set(index)
        info = self._infos[index]
        if isinstance(value, tvm.runtime.Tensor):
            buffer = self._buffer(index, tuple(value.shape))
            value = compact(value)
            if str(value.dtype) == info.dtype:
                value.copyto(buffer)
                self._bind(index, buffer)
                return
            value = value.numpy()
        array = as_array(value, info)
        buffer = self._buffer(index, array.shape)
        view = self._views[index]
        if view is None or array.dtype != view.dtype:
            require_convertible(array, info)
        if view is not None:
            np.copyto(view, array, casting="unsafe")
        else:
            buffer.copyfrom(np.asarray(array, dtype=numpy_dtype(info), order="C"))
        self._bind(index, buffer)

    def _buffer(self, index: int, shape: tuple[int, ...]) -> Any:
        """The executor's own tensor for an input whose value has that shape."""
        info = self._infos[index]
        self._require_shape(index, shape)
        buffer = self._buffers[index]
        if buffer is None or not (info.is_static or tuple(buffer.shape) == shape):
            device = self._device(info)
            self._buffers[index] = buffer = tvm.runtime.empty(shape, info.dtype, device)
            if device.type == "cpu" and numpy_dtype(info).isbuiltin == 1:
                self._views[index] = np.from_dlpack(buffer)
        return buffer

    def _device(self, info: TensorInfo) -> Any:
        return self._device_of[info.device] if info.device else self.devices[0]

    def _position(self, key: Any) -> int:
        if isinstance(key, str):
            if key in self._index:
                return self._index[key]
            raise InputError(f"no input {key!r}; there are {self._describe_inputs()}")
        if isinstance(key, bool) or not isinstance(key, (int, np.integer)):
            raise InputError(f"an input's key must be a name or an index, not {key!r:.60}")
        if not 0 <= key < len(self._infos):
            raise InputError(f"no input {key}; there are {self._describe_inputs()}")
        return int(key)

    def _settable(self, key: Any) -> int:
        index = self._position(key)
        name = self._infos[index].name
        if name in self._reserved:
            raise InputError(f"input {name!r} belongs to the cache that use_kv_cache() was given")
        return index

    def _require_shape(self, index: int, shape: tuple[int, ...]) -> None:
        declared = self._infos[index].shape
        if shape != declared:
            require_shape(self._what[index], shape, declared, self.metadata.bounds)

    def _describe_inputs(self) -> str:
        weights = len(self.metadata.params)
        return listed(self.metadata.inputs) + (
            f" (and {weights} weights from p0 on)" if weights else ""
        )


def _tables(infos: Sequence[TensorInfo]) -> tuple[dict[str, tuple[int | str, ...]], dict[str, str]]:
    return {info.name: info.shape for info in infos}, {info.name: info.dtype for info in infos}


def _flatten(result: Any) -> list[Any]:
    """The tensors of a result, which may be nested arrays of them, in order."""
    if isinstance(result, tvm.runtime.Tensor):
        return [result]
    return [tensor for item in result for tensor in _flatten(item)]


def parse_params(params_bytes: bytes | bytearray) -> dict[str, Any]:
    """Tensors by name, of the bytes that `save_param_dict` wrote.

    Raises InputError: they are something else, or cut off.
    """
    try:
        params = dict(tvm.runtime.load_param_dict(bytearray(params_bytes)))
        whole = len(tvm.runtime.save_param_dict(params))
    except Exception as error:
        raise InputError(
            f"not the bytes of a dict of parameters that save_param_dict wrote: {error}"
        ) from error
    if len(params_bytes) != whole:  # TVM fills what is missing with whatever its memory held
        raise InputError(
            f"a dict of these parameters has {whole} bytes, not {len(params_bytes)}; the file is "
            "truncated or damaged, so save it again"
        )
    return params
