"""Libraries on another machine, behind one of TVM's RPC servers, which needs nothing of Baton.

    session.upload("net.tar")
    library = remote.load_module(session, "net.tar")
    module = graph_executor.GraphModule(library["default"](session.cpu(0)))

The server links and loads the code. Names and shapes are kept here, and the weights are sent as
tensors, once for each library. TVM's virtual machine copies what it is given over RPC, so the
server copies inputs and weights in its memory for the first run after an input was set.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from compiler.errors import ExportError, InputError, LoadError
from compiler.runtime.executor import GraphExecutor
from compiler.runtime.factory import FactoryModule
from compiler.runtime.host import arrange_devices, kind_of
from compiler.runtime.kv_cache import KVCache
from compiler.runtime.load import check_file
from compiler.runtime.metadata import Metadata
from compiler.support.tempdir import TemporaryFolder


def load_module(
    session: Any, name: str, local: str | os.PathLike[str] | None = None
) -> RemoteLibrary:
    """Have a server load a library that was uploaded to it.

    Parameters
    ----------
    session : tvm.rpc.RPCSession
        From `rpc.connect`, a tracker's `request`, or `rpc.LocalSession()`.
    name : str
        The file's name on the server, a `.so` or `.tar` that `FactoryModule.export_library` wrote.
        The server links a `.tar`, with its C++ compiler.
    local : path, optional
        The same file on this machine. Without it, the file is downloaded for its description and
        weights.

    Returns
    -------
    library : RemoteLibrary

    Raises
    ------
    LoadError
        The file is not one of Baton's, or the server can't load it.
    """
    if local is not None:
        checked = check_file(local)
    else:
        with TemporaryFolder("remote") as folder:
            copy = Path(folder, os.path.basename(name))
            copy.write_bytes(_on_server(name, "download", lambda: session.download(name)))
            checked = check_file(copy)
    code = _on_server(name, "load", lambda: session.load_module(name))
    return RemoteLibrary(code, checked.metadata, checked.params)


def is_remote(module: Any) -> bool:
    """Whether a module of TVM's is one of a server's."""
    return getattr(module, "kind", None) == "rpc"


class RemoteLibrary(FactoryModule):
    """A library that a server has loaded; see `FactoryModule`.

    `code`: the server's module. `params`: weights in this machine's memory, sent with the first
    executor.
    """

    def __init__(
        self, code: Any, metadata: Metadata, params: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(code, metadata, params or {})

    def remove_params(self) -> RemoteLibrary:
        return RemoteLibrary(self.get_lib(), self.metadata)

    def export_library(self, path: Any, *_: Any, **__: Any) -> None:
        """Raises ExportError: the code is on the server."""
        raise ExportError(
            f"can't export to {str(path)!r}: the library's code is on an RPC server; copy the file "
            "that was uploaded"
        )

    def entry(self, *devices: Any) -> Callable[..., Any]:
        """Raises InputError: TVM's virtual machine returns no tensors over RPC."""
        raise InputError(
            f"a library on an RPC server has no entry(); use library[{self.libmod_name!r}](dev)"
        )

    def _make_executor(self, *devices: Any) -> Any:
        if len(devices) == 1 and isinstance(devices[0], (list, tuple)):
            devices = tuple(devices[0])
        arranged = arrange_devices(self.metadata, devices, remote=True)
        return RemoteExecutor(self.get_lib(), self.metadata, arranged, self._params_on(arranged))


class RemoteExecutor(GraphExecutor):
    """Runs a library on a server; see `GraphExecutor`."""

    _timed = ("invoke_stateful", "main")

    def set_input_zero_copy(self, key: str | int, value: Any) -> None:
        """Raises InputError: TVM's virtual machine copies what it is given over RPC."""
        raise InputError(
            f"input {key!r} can't be set without a copy on an RPC server; use set_input"
        )

    def make_kv_cache(self) -> KVCache:
        """Raises InputError: what a run writes to inputs stays on the server."""
        raise InputError("a library on an RPC server can't add rows to a cache of this process")

    def use_kv_cache(self, cache: KVCache) -> None:
        """Raises InputError, as `make_kv_cache`."""
        self.make_kv_cache()

    def call_with_machine(self, name: str) -> Any:
        """Call the server's global function on the virtual machine; None if there is none."""
        session = next(d._rpc_sess for d in self.devices if hasattr(d, "_rpc_sess"))
        try:
            function = session.get_function(name)
        except AttributeError:
            return None
        return function(self._vm.module, *(f"{kind_of(d)}:{d.index}" for d in self.devices))

    def _bind(self, index: int, tensor: Any) -> None:
        self._bound[index] = tensor
        self._run = None  # the virtual machine has a copy of what the tensor held before

    def _prepare(self) -> Callable[[], Any]:
        self._require_all_set()
        self._vm.set_input("main", *self._bound)
        self._run = self._once
        return self._run

    def _once(self) -> Any:
        self._vm.invoke_stateful("main")
        return self._vm.get_outputs("main")

    def _own(self, result: Any) -> Any:
        return result


def _on_server(name: str, what: str, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:
        raise LoadError(f"the RPC server can't {what} {name!r}: {error}") from error
