"""Build the wheel `baton-runtime`, which runs exported libraries without the compiler.

The wheel has Baton's runtime, TVM's runtime library and the Python modules that load it: 5 MB
instead of the 300 MB of apache-tvm. A `.pth` file appends its folder to the end of `sys.path`.
Installed packages `baton-tvm` or `apache-tvm` take precedence, and no installation overwrites files
of another one.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import os
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path

from compiler.errors import ExportError
from compiler.support.atomic_file import replacing
from compiler.support.regular_files import os_errors_as

_BATON = (
    "__init__.py", "errors.py", "_import_guard.py", "py.typed", "version.py",
    "support/__init__.py", "support/archive_limits.py", "support/atomic_file.py",
    "support/lazy_import.py", "support/regular_files.py", "support/tempdir.py",
    "support/text_tables.py",
    "ort/__init__.py", "ort/capi/", "ort/described.py", "ort/libraries.py", "ort/names.py",
    "ort/onnxruntime_names.txt", "ort/options.py", "ort/profiling.py", "ort/session.py",
    "ort/values.py", "runtime/", "tvm_workarounds/__init__.py", "tvm_workarounds/fast_import.py",
)  # fmt: skip
_TVM = re.compile(
    r"tvm/(((runtime|rpc|support)/.*|base|error|libinfo|_version)\.py"
    r"|lib/libtvm_runtime\w*\.so|LICENSE|NOTICE)"
)
_NEEDS = ("apache-tvm-ffi", "numpy")
_FOLDER = "baton_runtime"

_TVM_INIT = '''\
"""The runtime of TVM {version}, without its compiler."""

from tvm_ffi import get_global_func, register_global_func, register_object

from .libinfo import __version__
from .base import _RUNTIME_ONLY
from .runtime import Object, cpu, cuda, device, metal, opencl, rocm, vulkan
from . import error, rpc, runtime, support
'''

_METADATA = """\
Metadata-Version: 2.4
Name: baton-runtime
Version: {version}
Summary: Runs libraries that Baton compiled, without the compiler
License-Expression: Apache-2.0
License-File: LICENSE
Requires-Python: {python}
{needs}
Description-Content-Type: text/markdown

Runs what `baton compile model.onnx -o model.so` wrote, with the runtime of TVM {tvm}, which is
part of it:

```python
from baton_tvm.runtime import load_module

session = load_module("model.so").session(num_threads=2)
results = session.run({{"data": image}})
```
"""

_WHEEL = """\
Wheel-Version: 1.0
Generator: baton {version}
Root-Is-Purelib: false
{tags}
"""


def build_runtime_wheel(
    folder: str | os.PathLike[str], tvm: str | os.PathLike[str] | None = None
) -> Path:
    """Write the wheel `baton-runtime` of this version of Baton.

    `folder`: output folder, created if missing. `tvm`: wheel of apache-tvm, of the same version, to
    take the runtime from; for another architecture the result is for that architecture. The
    installed package by default. Returns the wheel.
    Raises ExportError: `tvm` is not a wheel of that version, apache-tvm is not installed, or the
    folder can't be written.
    """
    from compiler import __version__

    tvm_version, tags, tvm_files = _from_wheel(Path(tvm)) if tvm is not None else _installed()
    required = metadata.version("apache-tvm")
    if tvm_version != required:
        raise ExportError(f"the runtime must be that of apache-tvm {required}, not {tvm_version}")
    root = Path(__file__).parents[2]
    alias = (root / "support" / "baton_tvm" / "__init__.py").read_bytes()
    about = f"baton_runtime-{__version__}.dist-info"
    files = {
        "baton_runtime.pth": f"{_FOLDER}\n".encode(),
        f"{_FOLDER}/baton_tvm/__init__.py": alias,
        **{f"{_FOLDER}/compiler/{name}": data for name, data in _baton_files(root)},
        **{f"{_FOLDER}/{name}": data for name, data in tvm_files.items()},
        f"{_FOLDER}/tvm/__init__.py": _TVM_INIT.format(version=tvm_version).encode(),
        f"{about}/METADATA": _metadata(__version__, tvm_version).encode(),
        f"{about}/WHEEL": _WHEEL.format(version=__version__, tags="\n".join(tags)).encode(),
        f"{about}/licenses/LICENSE": tvm_files["tvm/LICENSE"],  # the text of Apache-2.0
    }
    platforms = ".".join(tag.rpartition("-")[2] for tag in tags)
    path = Path(folder) / f"baton_runtime-{__version__}-py3-none-{platforms}.whl"
    with os_errors_as(ExportError, f"can't write {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(path, files, f"{about}/RECORD")
    return path


TvmParts = tuple[str, list[str], dict[str, bytes]]
"""TVM's version, the "Tag:" lines of its wheel, and the files of its runtime by name."""


def _installed() -> TvmParts:
    try:
        found = metadata.distribution("apache-tvm")
    except metadata.PackageNotFoundError as error:
        raise ExportError("apache-tvm is not installed here; give its wheel (--tvm)") from error
    spec = importlib.util.find_spec("tvm")
    if spec is None or spec.origin is None:
        raise ExportError("apache-tvm's package, tvm, can't be found; give its wheel (--tvm)")
    root = Path(spec.origin).parent
    names = (f"tvm/{path.relative_to(root).as_posix()}" for path in root.rglob("*"))
    files = {name: (root.parent / name).read_bytes() for name in names if _TVM.fullmatch(name)}
    return found.version, _tags(found.read_text("WHEEL") or ""), _require(files, str(root))


def _from_wheel(path: Path) -> TvmParts:
    name = re.match(r"apache_tvm-([^-]+)-", path.name)
    if name is None:
        raise ExportError(f"{path} is not called as wheels of apache-tvm are, apache_tvm-...whl")
    try:
        with zipfile.ZipFile(path) as wheel:
            files = {each: wheel.read(each) for each in wheel.namelist() if _TVM.fullmatch(each)}
            about = wheel.read(f"apache_tvm-{name[1]}.dist-info/WHEEL").decode()
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise ExportError(f"{path} can't be read as a wheel: {error}") from error
    return name[1], _tags(about), _require(files, str(path))


def _tags(about: str) -> list[str]:
    """The platform tags of a wheel's description."""
    return [line for line in about.splitlines() if line.startswith("Tag: py3-none-")]


def _require(files: dict[str, bytes], where: str) -> dict[str, bytes]:
    missing = {"tvm/lib/libtvm_runtime.so", "tvm/runtime/vm.py", "tvm/LICENSE"} - set(files)
    if missing:
        raise ExportError(f"{where} has no {', '.join(sorted(missing))}")
    return files


def _baton_files(root: Path) -> Iterator[tuple[str, bytes]]:
    for entry in _BATON:
        found: Iterable[Path] = (root / entry).rglob("*.py") if entry[-1] == "/" else [root / entry]
        for path in sorted(each for each in found if each.parent != Path(__file__).parent):
            yield path.relative_to(root).as_posix(), path.read_bytes()


def _metadata(version: str, tvm_version: str) -> str:
    """Metadata of the wheel, with the requirements that Baton and its runtime share."""
    own = metadata.metadata("baton-tvm")
    lines = [
        f"Requires-Dist: {line}"
        for line in own.get_all("Requires-Dist") or ()
        if re.split(r"[^\w-]", line)[0] in _NEEDS and "extra ==" not in line
    ]
    return _METADATA.format(
        version=version, python=own["Requires-Python"], needs="\n".join(lines), tvm=tvm_version
    )


def _write(path: Path, files: Mapping[str, bytes], record: str) -> None:
    """Write a reproducible zip archive of the files and their checksums."""
    lines = [f"{name},{_digest(data)},{len(data)}\n" for name, data in files.items()]
    with replacing(path) as stream, zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data in {**files, record: "".join([*lines, f"{record},,\n"]).encode()}.items():
            entry = zipfile.ZipInfo(name)  # of 1980
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if name.endswith(".so") else 0o100644) << 16
            wheel.writestr(entry, data)


def _digest(data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest())
    return f"sha256={digest.decode().rstrip('=')}"
