"""`remote.load_module` for libraries of `relay.build`, and a session's methods of old."""

from __future__ import annotations

from typing import Any

import tvm.rpc.client
import tvm.rpc.server
import tvm.runtime

from ..errors import ForeignLibraryError
from ..runtime import remote
from ..runtime.debugger.trace import start_server
from .patches import Patches

_LIBRARIES = (".so", ".tar")
_tvm_load_module = tvm.runtime.load_module


def patch(patches: Patches) -> None:
    """Give sessions their old methods; servers of this process load as servers elsewhere do."""
    session = tvm.rpc.client.RPCSession
    patches.add(session, "context", session.device)
    patches.add(session, "gpu", session.cuda)
    patches.set(tvm.rpc.server, "_load_module", _tvm_load_module)
    patches.set(tvm.rpc.server, "_popen_start_rpc_server", start_server)


def change(patches: Patches) -> None:
    """Have sessions load libraries of `relay.build`."""
    session = tvm.rpc.client.RPCSession
    load_code = session.load_module

    def load_module(self: Any, path: str) -> Any:
        """A library that `lib.export_library` wrote, or any other module of TVM's."""
        if path.endswith(_LIBRARIES):
            try:
                return remote.load_module(_Plain(self, load_code), path)
            except ForeignLibraryError:
                pass
        return load_code(self, path)

    patches.set(session, "load_module", load_module)


class _Plain:
    """A session as it is without the old names."""

    def __init__(self, session: Any, load_code: Any) -> None:
        self.download = session.download
        self.load_module = lambda name: load_code(session, name)
