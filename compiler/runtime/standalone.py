"""Libraries that TVM's own runtime runs: `export_library("net.so", standalone=True)`.

    library = tvm.runtime.load_module("net.so")
    module = library["default"](tvm.cpu())
    module["set_input"]("x", value)

Loaded that way, in Python or in C++, nothing of Baton is needed. The weights are in the library's
code, where its other weights would follow it, and only the CPU runs it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compiler.errors import ExportError
from compiler.runtime.weights import write_weights

if TYPE_CHECKING:
    from compiler.runtime.factory import FactoryModule
    from compiler.runtime.metadata import TensorInfo

_SOURCE = Path(__file__).parent.parent / "native" / "standalone" / "executor.cc"
_OPEN = -1


def require_standalone(library: FactoryModule, target: Path) -> None:
    """Raise unless TVM's runtime alone can run a library from such a file. Raises ExportError."""
    metadata = library.metadata
    reason = ""
    if target.suffix != ".so":
        reason = "it is linked here; export to a .so"
    elif library.origin_file is not None:
        reason = "it was loaded from a file, whose object files are gone; build it again"
    elif metadata.devices != ("cpu",):
        reason = f"it is for {', '.join(metadata.devices)}, and TVM's executor here is the CPU's"
    elif any(entry.get("runtime") for entry in metadata.partition.values()):
        reason = "the code of its subgraphs runs in a runtime that Baton loads"
    if reason:
        raise ExportError(f"can't export to {str(target)!r} as standalone: {reason}")


def write_standalone(library: FactoryModule, draft: Path, fcompile: Any, **kwargs: Any) -> None:
    """Link a library of kernels, with the executor as its function `default`."""
    from tvm_ffi import libinfo

    work = Path(kwargs["workspace_dir"])
    files = {each: work / each for each in ("code", "weights", "description")}
    files["code"].write_bytes(_code_of(library, work))
    with open(files["weights"], "wb") as stream:
        if library.params:
            write_weights(stream, library.metadata, library.params)
    files["description"].write_bytes(b"".join(_description(library)))
    given = kwargs.pop("options", None) or []
    includes = (libinfo.find_include_path(), libinfo.find_dlpack_include_path())
    options = [
        *([given] if isinstance(given, str) else given),
        *("-std=c++17", "-O2", "-fvisibility=hidden"),
        *(f"-I{folder}" for folder in includes),
        *(f'-DBATON_{name.upper()}="{path}"' for name, path in files.items()),
        *("-Wl,--no-as-needed", f"-L{Path(libinfo.find_libtvm_ffi()).parent}", "-ltvm_ffi"),
    ]
    library.get_lib().export_library(
        str(draft),
        fcompile=fcompile,
        fpack_imports=lambda *_: str(_SOURCE),
        options=options,
        **kwargs,
    )


def _code_of(library: FactoryModule, folder: Path) -> bytes:
    """The virtual machine's code, without the kernels."""
    path = folder / "executable"
    library.get_lib().write_to_file(str(path))
    return path.read_bytes()


def _description(library: FactoryModule) -> Iterator[bytes]:
    """Inputs, the number of outputs, and weights with their places, as executor.cc reads them."""
    metadata = library.metadata
    yield _number(len(metadata.inputs))
    for info in metadata.inputs:
        yield from _tensor(info)
    yield _number(len(metadata.outputs))
    yield _number(len(metadata.params))
    for weight in metadata.params:
        yield from _tensor(weight)
        yield _number(weight.offset)


def _tensor(info: TensorInfo) -> Iterator[bytes]:
    for text in (info.name, info.dtype):
        encoded = text.encode()
        yield _number(len(encoded)) + encoded
    yield _number(len(info.shape))
    for extent in info.shape:
        yield _number(extent if isinstance(extent, int) else _OPEN)


def _number(value: int) -> bytes:
    return struct.pack("<q", value)
