"""Build and install `libbaton_runtime`, the C and C++ loader of exported libraries."""

from __future__ import annotations

import os
import subprocess
import zipfile
from collections.abc import Iterable
from pathlib import Path

from compiler.errors import ExportError
from compiler.support.atomic_file import write_file
from compiler.support.cxx import cxx_command, include_dir
from compiler.support.regular_files import os_errors_as
from compiler.support.tempdir import TemporaryFolder

_SOURCES = Path(__file__).parents[2] / "native"
_HEADERS = ("runtime.h", "runtime.hpp")
_NAME = "libbaton_runtime.so"
_TVM_LIBRARIES = {"libtvm_ffi.so", "libtvm_runtime.so", "libtvm_runtime_extra.so"}

_PKG_CONFIG = """\
prefix=${{pcfiledir}}/../..
Name: baton_runtime
Description: Runs libraries that Baton exported
Version: {version}
Cflags: -I${{prefix}}/include
Libs: -L${{prefix}}/lib -lbaton_runtime
"""

_CMAKE = """\
get_filename_component(_baton_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET baton::runtime)
  add_library(baton::runtime SHARED IMPORTED)
  set_target_properties(baton::runtime PROPERTIES
    IMPORTED_LOCATION "${_baton_prefix}/lib/libbaton_runtime.so"
    INTERFACE_INCLUDE_DIRECTORIES "${_baton_prefix}/include")
  target_compile_features(baton::runtime INTERFACE cxx_std_17)
endif()
unset(_baton_prefix)
"""


def build_cpp_runtime(
    prefix: str | os.PathLike[str],
    flags: Iterable[str] = ("-O2",),
    wheels: Iterable[str | os.PathLike[str]] = (),
) -> Path:
    """Compile the runtime library and lay out an installation that needs no Python.

    `prefix`: installation folder: `include/baton`, and `lib` with the library, the TVM libraries
    that it needs, and files for pkg-config and CMake. The folder is relocatable. `flags`:
    additional compiler flags. `wheels`: wheels of apache-tvm and apache-tvm-ffi for another
    architecture, used instead of the installed packages. The C++ compiler must target that
    architecture. Returns the library.
    Raises ExportError: no C++ compiler is found ($CXX names one), compilation fails, a wheel is
    unreadable or lacks a library, or the folder can't be written.
    """
    import tvm_ffi.libinfo

    from compiler import __version__

    root = Path(prefix)
    folders = (
        include_dir(),
        tvm_ffi.libinfo.find_include_path(),
        tvm_ffi.libinfo.find_dlpack_include_path(),
    )
    with (
        os_errors_as(ExportError, f"can't install {_NAME} into {root}"),
        TemporaryFolder("runtime") as work,
    ):
        tvm_libraries = _from_wheels(wheels, Path(work)) or _installed()
        (Path(work) / "cpu_flags.inc").write_text(_cpu_flags())
        made = Path(work) / _NAME
        command = [
            *cxx_command(), "-std=c++17", "-fPIC", "-fvisibility=hidden", "-shared", *flags,
            *(f"-I{folder}" for folder in (work, *folders)),
            *map(str, sorted(_SOURCES.glob("*.cc"))),
            "-Wl,--no-as-needed", *map(str, tvm_libraries),
            "-Wl,-rpath,$ORIGIN", f"-Wl,-soname,{_NAME}", "-o", str(made),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ExportError(
                f"{command[0]} does not compile {_NAME}:\n{done.stderr.strip()[-4000:]}"
            )
        _install(root, [made, *tvm_libraries], __version__)
    return root / "lib" / _NAME


def _install(root: Path, libraries: Iterable[Path], version: str) -> None:
    headers, library_folder = root / "include" / "baton", root / "lib"
    pkg_config, cmake = library_folder / "pkgconfig", library_folder / "cmake" / "baton"
    for folder in (headers, pkg_config, cmake):
        folder.mkdir(parents=True, exist_ok=True)
    for name in _HEADERS:
        _copy(include_dir() / "baton" / name, headers / name)
    for path in libraries:
        _copy(path, library_folder / path.name)
    write_file(pkg_config / "baton_runtime.pc", _PKG_CONFIG.format(version=version))
    write_file(cmake / "batonConfig.cmake", _CMAKE)


def _copy(source: Path, target: Path) -> None:
    """Replace the target with a new file; running programs keep the old one."""
    write_file(target, source.read_bytes())


def _installed() -> list[Path]:
    """The installed TVM libraries that kernels and the virtual machine need."""
    import tvm.libinfo
    import tvm_ffi.libinfo

    main = Path(tvm.libinfo.find_libtvm_runtime())
    extra = main.with_name(main.name.replace("runtime", "runtime_extra"))
    ffi = Path(tvm_ffi.libinfo.find_libtvm_ffi())
    return [ffi, main, *([extra] if extra.is_file() else [])]


def _from_wheels(wheels: Iterable[str | os.PathLike[str]], folder: Path) -> list[Path]:
    """Unpack the TVM libraries of wheels into a folder; return none without wheels."""
    given = list(wheels)
    found = {}
    for wheel in given:
        try:
            with zipfile.ZipFile(wheel) as archive:
                for entry in archive.namelist():
                    name = entry.rpartition("/")[2]
                    if name in _TVM_LIBRARIES:
                        found[name] = folder / name
                        found[name].write_bytes(archive.read(entry))
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            raise ExportError(f"{wheel} can't be read as a wheel: {error}") from error
    missing = _TVM_LIBRARIES - set(found) if given else ()
    if missing:
        raise ExportError(
            f"the wheels have no {', '.join(sorted(missing))}; give those of apache-tvm and of "
            "apache-tvm-ffi"
        )
    return list(found.values())


def _cpu_flags() -> str:
    """C++ array initializers of the table of CPU features."""
    from compiler.runtime.cpu import LINUX_FLAGS

    return "".join(f'{{"{feature}", "{flag}"}},\n' for feature, flag in LINUX_FLAGS.items())
