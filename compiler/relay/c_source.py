"""Compile the C sources that external code generators of TVM 0.8 to 0.18 return.

They include the runtime's headers of those versions, for which `include/tvm_0_18` has the interface
over that of today.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import tvm
from tvm_ffi import libinfo

from ..errors import BuildError, PartitionError
from ..support.cxx import cxx_command, include_dir
from ..support.tempdir import TemporaryFolder

_FORMATS = ("c", "cc", "cpp")
_EXPORT = "#include <tvm/runtime/c_runtime_api.h>\nBATON_EXPORT_C_FUNC({})\n"


def with_object_code(module: Any, name: str, where: str) -> Any:
    """Compile a module of C or C++ source to object code; other modules are returned unchanged.

    `name`: the function of the module, exported by `TVM_DLL_EXPORT_TYPED_FUNC`,
    `TVM_DLL_EXPORT_PACKED_FUNC`, or as a C function of the calling convention of those versions.
    Raises BuildError, which begins with `where`: there is no compiler, it reports errors, or the
    source does not define the function.
    """
    if module.kind != "c" or not {*module.get_write_formats()} & {*_FORMATS}:
        return module
    if module.get_function("get_const_vars")():
        raise BuildError(
            f"{where}: the source expects its constants by name (const_vars); write them into the "
            "source, or partition with bind_constants=False to get them as arguments"
        )
    with TemporaryFolder("c-source") as folder:
        path = Path(folder) / "source.o"
        code = _object(module.inspect_source(), path, where)
        if f"__tvm_ffi_{name}\0".encode() not in code:
            if f"{name}\0".encode() not in code:
                raise BuildError(
                    f"{where}: the source defines no function {name!r}; export it with "
                    f"TVM_DLL_EXPORT_TYPED_FUNC({name}, ...)"
                )
            export, both = Path(folder) / "export.o", Path(folder) / "both.o"
            _object(_EXPORT.format(name), export, where)
            _run([*_compiler(where), "-r", "-nostdlib", str(path), str(export)], both, where)
            path = both
        return tvm.runtime.load_static_library(str(path), [name])


def _object(source: str, path: Path, where: str) -> bytes:
    """Compile a source as C++, as TVM's export did for C, too."""
    file = path.with_suffix(".cc")
    file.write_text(source)
    headers = [
        include_dir() / "tvm_0_18",
        Path(tvm.__file__).parent / "include",
        libinfo.find_include_path(),
        libinfo.find_dlpack_include_path(),
    ]
    flags = ["-std=c++17", "-O2", "-fPIC", "-c", *(f"-I{folder}" for folder in headers)]
    _run([*_compiler(where), *flags, str(file)], path, where)
    return path.read_bytes()


def _compiler(where: str) -> list[str]:
    try:
        return cxx_command()
    except PartitionError as error:
        raise BuildError(f"{where}: {error}") from None


def _run(command: list[str], output: Path, where: str) -> None:
    done = subprocess.run(
        [*command, "-o", str(output)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BuildError(
            f"{where}: {command[0]} does not compile the source that the code generator returned; "
            "pass include folders as CXX='g++ -I...':\n"
            f"{done.stderr.strip()}"
        )
