"""`baton compile` of what it compiled before: the library is written again, without TVM.

    options, place of the model --> in the cache? --> the model's files unchanged? --> the library
                                        |no                |no
                                        +------------------+--> compile_model --> keep

Only commands whose result is decided by the model's files, the options, the code installed, and
this machine are kept. Importing TVM and the model would take longer than all the rest.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from compiler.lowering.cache import cli_cache, kernel_cache
from compiler.lowering.cache.warnings import recorded_warnings
from compiler.lowering.report import Report
from compiler.support.hashing import file_digests
from compiler.support.source_fingerprint import code_version

from .compile import BuildOptions, Built, Compiled, compile_model
from .console import Steps

_DISTRIBUTIONS = ("apache-tvm", "apache-tvm-ffi", "ml-dtypes", "numpy", "onnx", "protobuf")
_VARIABLES = ("BATON_", "TVM_", "LLVM_", "LD_", "CXX", "PYTHONPATH", "OMP_")
_DECIDED_ELSEWHERE = (
    *("target_host", "logs", "auto_scheduler_logs", "samples"),
    *("backends", "plugins", "backend_options"),
)
"""Options that name other files, or code."""
_OF_ONE_CORE = ("processor", "cpu MHz", "bogomips", "apicid", "initial apicid", "core id")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_CLOCK_STEP = 0.02
"""Seconds by which the time of a file may lag behind the clock."""


def compile_or_restore(
    model: Path, options: BuildOptions, output: Path | None = None, steps: Steps | None = None
) -> Compiled:
    """As `compile_model`; the library of the same command before is written again."""
    steps = steps or Steps()
    cache = kernel_cache.user_cache()
    if output is None or not cache.limit:
        return compile_model(model, options, output, steps)
    key = command_key(model, options, output)
    if not key or not output.parent.is_dir():
        return compile_model(model, options, output, steps)
    start = time.time()
    with steps.step("restore", str(output)):
        metadata = cli_cache.write_again(cache, key, output)
    if metadata is not None:
        report = Report.from_json(metadata.report)
        report.library_bytes = output.stat().st_size
        return Compiled(metadata, report, dict(steps.seconds), output)
    with ThreadPoolExecutor(1) as pool, recorded_warnings("baton") as messages:
        digest = pool.submit(file_digests, [model])
        built = compile_model(model, options, output, steps)
    if built.library.kept_as:
        _keep(cache, key, model, built, messages, digest, start)
    return built


def command_key(model: Path, options: BuildOptions, output: Path) -> str:
    """Hash of all that decides a library but the contents of the model; "" where more does.

    Where TVM is loaded already, operators and schedules may be registered that nobody can hash.
    """
    is_plain = not any(getattr(options, name) for name in _DECIDED_ELSEWHERE)
    for_cpu = options.target.split(maxsplit=1)[:1] == ["llvm"]
    is_onnx = model.suffix == ".onnx" and output.suffix == ".so"
    if "tvm" in sys.modules or not (is_plain and for_cpu and is_onnx):
        return ""
    digest = hashlib.sha256()
    try:
        for part in (*_code(), *_machine(), repr(options), f"{model} {model.resolve()}"):
            digest.update(part.encode() + b"\0")
    except (OSError, importlib.metadata.PackageNotFoundError):
        return ""
    return digest.hexdigest()


def _code() -> Iterator[str]:
    """Which code of Baton, TVM and Python runs, and with which settings."""
    yield f"baton {code_version()} python {sys.version}"
    for name in _DISTRIBUTIONS:
        yield f"{name} {importlib.metadata.version(name)}"
    tvm = importlib.util.find_spec("tvm")
    for folder in (tvm.submodule_search_locations or ()) if tvm else ():
        for path in sorted(Path(folder, "lib").glob("*.so")):
            status = path.stat()
            yield f"{path} {status.st_size} {status.st_mtime_ns}"
    for name, value in sorted(os.environ.items()):
        if name.startswith(_VARIABLES):
            yield f"{name}={value}"


def _machine() -> Iterator[str]:
    """Machine properties that LLVM and the schedules depend on."""
    yield f"{platform.machine()} {len(os.sched_getaffinity(0))}"
    first, _, _ = Path("/proc/cpuinfo").read_text().partition("\n\n")
    for line in first.splitlines():
        if not line.startswith(_OF_ONE_CORE):
            yield line
    for index in sorted(_CACHES.glob("index*")):
        yield " ".join((index / each).read_text() for each in ("level", "type", "size"))


def _keep(
    cache: kernel_cache.KernelCache,
    key: str,
    model: Path,
    built: Built,
    messages: list[tuple[str, int, str]],
    digest: Future[list[str]],
    start: float,
) -> None:
    """Keep a command, unless its model was written meanwhile."""
    from compiler.relay.frontend.onnx.model import data_files

    try:
        others = data_files(model)
        files = dict(zip(map(str, (model, *others)), (*digest.result(), *file_digests(others))))
        newest = max(max(s.st_mtime, s.st_ctime) for s in map(os.stat, files))
    except OSError:
        return
    if newest < start - _CLOCK_STEP:
        kept = cli_cache.Kept(built.library.kept_as, files, messages)
        cli_cache.keep(cache, key, kept, built.library.image())
