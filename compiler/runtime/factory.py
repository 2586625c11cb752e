"""The result of `relay.build`: a library that makes executors and can be exported."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from compiler.errors import InputError
from compiler.runtime import foreign, forks
from compiler.runtime.bound_memory import BoundMemory
from compiler.runtime.code import runnable
from compiler.runtime.export import export_library, linked_image
from compiler.runtime.graph_json import graph_json
from compiler.runtime.host import arrange_devices, kind_of, require_cpu_features
from compiler.runtime.metadata import Metadata, listed
from compiler.support.regular_files import os_errors_as, read_regular

if TYPE_CHECKING:
    from compiler.runtime.load import LoadedFile
    from compiler.runtime.session import Session

_FUNCTIONS = {
    "get_graph_json": "get_graph_json",
    "get_graph_params": "get_params",
    "remove_params": "remove_params",
    "load_late_bound_consts": "load_late_bound_consts",
    "load_late_bound_consts_from_map": "load_late_bound_consts_from_map",
}


class FactoryModule:
    """A built library: code, weights and their description.

    `lib["default"](dev)` makes an executor for `graph_executor.GraphModule`. A library unpacks
    as `graph_json, lib, params`, as often as wanted.

    Parameters
    ----------
    executable : tvm.runtime.Executable or tvm.runtime.Module
        Whose `main` takes the inputs, then the weights.
    metadata : Metadata
        Its `params` are replaced by what `params` holds, laid out for export.
    params : dict of str to tvm.runtime.Tensor
        Weights in the order of `main`'s trailing parameters. Empty for a library that gets its
        weights at run time; `metadata.params` then says which.
    report : object, optional
        The build's report; the metadata's JSON-able one by default.
    ir_mod : tvm.IRModule, optional
        The module that was built.
    target : tvm.target.Target, optional
        What it was built for; the metadata's string by default.
    origin : LoadedFile, optional
        The file that the library was loaded from.
    kept_as : str
        The key under which the build cache has the library, weights included; "" if it has not.

    Attributes
    ----------
    metadata, params, report, ir_mod, target, kept_as
        As given.
    origin : path or None
        The path of the file that the library was loaded from.
    origin_file : LoadedFile or None
        That file itself, whatever lies at its path by now.
    libmod_name : str
        The name under which the library makes executors.
    """

    def __init__(
        self,
        executable: Any,
        metadata: Metadata,
        params: Mapping[str, Any],
        report: Any = None,
        ir_mod: Any = None,
        target: Any = None,
        origin: LoadedFile | None = None,
        kept_as: str = "",
    ) -> None:
        in_memory = bool(params) and origin is None
        self.metadata = metadata.with_params(params.items()) if in_memory else metadata
        self.params: Mapping[str, Any] = MappingProxyType(dict(params))
        self.report = metadata.report if report is None else report
        self.ir_mod = ir_mod
        self.target = metadata.target if target is None else target
        self.origin = origin.path if origin else None
        self.origin_file = origin
        self.kept_as = kept_as
        self._executable = executable
        self._runnable: Any = None
        self._images: dict[str, bytes] = {}
        self._lock = forks.ForkSafeLock()
        self._placed: dict[tuple[str, int], dict[str, Any]] = {}

    def __repr__(self) -> str:
        origin = f" of {str(self.origin)!r}" if self.origin else ""
        inputs, outputs = listed(self.metadata.inputs), listed(self.metadata.outputs)
        return f"<Library{origin} for {self.metadata.target}: {inputs} -> {outputs}>"

    def partition_info(self) -> dict[str, dict[str, Any]]:
        """What backends claimed, by name of the subgraph's function.

        Returns
        -------
        dict
            Per subgraph "backend", "target", "runtime", "operators", "inputs" and "outputs"
            (lists of "name", "shape", "dtype"), "flops" of one call, and "attrs" that the
            backend set.
            It is a copy, the same for a library that was loaded.
        """
        return copy.deepcopy(self.metadata.partition)

    @property
    def libmod_name(self) -> str:
        return self.metadata.mod_name

    @property
    def module(self) -> FactoryModule:
        """The library itself: what had the functions and `export_library` in the old API."""
        return self

    @property
    def lib(self) -> Any:
        """Same as `get_lib()`."""
        return self.get_lib()

    @property
    def graph_json(self) -> str:
        """Same as `get_graph_json()`."""
        return self.get_graph_json()

    def __getitem__(self, name: str) -> Callable[..., Any]:
        """A function of the library.

        Parameters
        ----------
        name : str
            `libmod_name` ("default" unless the build said otherwise) makes an executor from one
            or several devices, "debug_create" from that name and devices; "get_graph_json",
            "get_graph_params" and "remove_params" are the methods; any other name is one of the
            executable's own functions.

        Raises
        ------
        InputError
            There is no such function.
        """
        if name == self.libmod_name:
            return self._make_executor
        if name == "debug_create":
            return lambda mod_name, *devices: self[mod_name](*devices)
        if name in _FUNCTIONS:
            return getattr(self, _FUNCTIONS[name])
        code = self._code()
        if not code.implements_function(name, True):
            raise InputError(
                f"the library has no function {name!r}; lib[{self.libmod_name!r}](dev) makes an "
                f"executor, and it has {', '.join(_FUNCTIONS)}"
            )
        return code.get_function(name, query_imports=True)

    def __iter__(self) -> Iterator[Any]:
        return iter((self.get_graph_json(), self.get_lib(), self.get_params()))

    def get_graph_json(self) -> str:
        """The graph as JSON; `compiler.runtime.graph_json` says what it holds."""
        return graph_json(self.metadata)

    def get_executor_config(self) -> str:
        """Same as `get_graph_json()`."""
        return self.get_graph_json()

    def get_params(self) -> dict[str, Any]:
        """The weights by name: "p0", "p1", ... in the layouts that the kernels take."""
        return dict(self.params)

    def get_lib(self) -> Any:
        """TVM's module with the executable and its kernels, without weights."""
        return getattr(self._executable, "mod", self._executable)

    def image(self) -> bytes:
        """The shared library that an exported file begins with; a C++ compiler links it once.

        Raises
        ------
        ExportError
            Linking failed.
        """
        from tvm.support import cc

        linker = str(cc.get_cc())
        with self._lock:
            if linker not in self._images:
                self._images[linker] = linked_image(self)
            return self._images[linker]

    def assembly(self) -> str:
        """The machine code of the CPU kernels as text; see `compiler.runtime.disassembly`."""
        from compiler.runtime.disassembly import assembly

        return assembly(self.get_lib())

    def get_devices(self) -> list[Any]:
        """An empty list, as it always was."""
        return []

    def remove_params(self) -> FactoryModule:
        """This library without its weights, which are then set at run time."""
        return FactoryModule(
            self._executable, self.metadata, {}, self.report, self.ir_mod, self.target
        )

    def load_late_bound_consts(self, path: str | os.PathLike[str]) -> None:
        """Take the weights of a library that has none from a parameter file.

        Raises
        ------
        InputError
            The file is damaged, or a weight is none of the library's.
        """
        from compiler.runtime.executor import parse_params

        with os_errors_as(InputError, f"can't read the parameter file {str(path)!r}"):
            content = read_regular(path)
        self.load_late_bound_consts_from_map(parse_params(content))

    def load_late_bound_consts_from_map(self, weights: Mapping[str, Any]) -> None:
        """Take the weights of a library that has none, by name.

        Raises
        ------
        InputError
            A weight is none of the library's, or has another shape or dtype.
        """
        infos = {info.name: info for info in self.metadata.params}
        for name, tensor in weights.items():
            if name not in infos:
                raise InputError(f"{name!r} is no weight of the library {self.libmod_name!r}")
            wanted = tuple(infos[name].shape), infos[name].dtype
            given = tuple(map(int, tensor.shape)), str(tensor.dtype)
            if wanted != given:
                raise InputError(f"the weight {name!r} is {given}, the library takes {wanted}")
        with self._lock:
            self.params = MappingProxyType({**self.params, **weights})
            self._placed.clear()

    def export_library(
        self,
        path: str | os.PathLike[str],
        fcompile: Callable[..., Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Write code, weights and metadata into one `.so` or `.tar`.

        See `compiler.runtime.export.export_library`, which raises ExportError.
        """
        export_library(self, path, fcompile, **kwargs)
        if hasattr(self.report, "library_bytes"):  # a build's report, not a loaded library's
            self.report.library_bytes = os.path.getsize(path)

    def entry(self, *devices: Any) -> Callable[..., Any]:
        """A function of the inputs alone, without names, checks and copies.

        Each has its own virtual machine, and must not be called by two threads at a time.
        Where the library was built with the pass `StaticAllocation`, it also keeps the
        intermediate tensors between calls.

        Parameters
        ----------
        *devices : tvm.runtime.Device
            As for an executor.

        Returns
        -------
        entry : callable
            Takes one tensor for each of `metadata.inputs`, on its device, contiguous and aligned
            to 64 bytes; returns a tensor, or an array of tensors. Kernels and the virtual machine
            refuse any other with TVM's errors: TypeError, ValueError or RuntimeError. An output
            that is an input or a weight is that tensor itself; see `copied_where_bound`.
        """
        from compiler.runtime.entry import make_entry

        require_cpu_features(self.metadata, f"library {self.libmod_name!r}")
        arranged = arrange_devices(self.metadata, devices)
        return make_entry(self._code(), arranged, self._params_on(arranged).values())

    def weights_memory(self, *devices: Any) -> BoundMemory:
        """Address ranges of the weights on the given devices; see `copied_where_bound`."""
        placed = self._params_on(arrange_devices(self.metadata, devices))
        return BoundMemory(list(placed.values()))

    def session(
        self,
        *devices: Any,
        num_threads: int | None = None,
        parallel: int = 1,
        instrument: Callable[..., int] | None = None,
    ) -> Session:
        """A session: `run({name: array})`, from any number of threads; see `Session`."""
        from compiler.runtime.session import Session

        return Session(self, devices, num_threads, parallel, instrument)

    def _make_executor(self, *devices: Any) -> Any:
        """An executor on the given devices, which may also come as one list."""
        from compiler.runtime.executor import GraphExecutor

        if len(devices) == 1 and isinstance(devices[0], (list, tuple)):
            devices = tuple(devices[0])
        require_cpu_features(self.metadata, f"library {self.libmod_name!r}")
        arranged = arrange_devices(self.metadata, devices)
        return GraphExecutor(self._code(), self.metadata, arranged, self._params_on(arranged))

    def _code(self) -> Any:
        """The runnable module."""
        foreign.register()
        with self._lock:
            if self._runnable is None:
                self._runnable = runnable(self.get_lib())
            return self._runnable

    def _params_on(self, devices: list[Any]) -> dict[str, Any]:
        """The weights on the devices where `main` expects them, copied there once."""
        import tvm

        device_of = {kind_of(device): device for device in (tvm.cpu(0), *devices)}
        placed = {}
        with self._lock:
            for info in self.metadata.params:
                if info.name not in self.params:
                    continue
                tensor = self.params[info.name]
                device = device_of[info.device] if info.device else devices[0]
                if tensor.device != device:
                    there = self._placed.setdefault((device.type, device.index), {})
                    if info.name not in there:
                        there[info.name] = tensor.copyto(device)
                    tensor = there[info.name]
                placed[info.name] = tensor
        return placed
