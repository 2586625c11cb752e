"""Cache finished libraries, so that a repeated build only reassembles its library.

    build --hash--> in the cache? --yes--> lowered main + object code of its kernels + weights
                         |no
                         +--> all steps of the driver --> kept under the hash

`library_file` describes the file of a library. Object code is not in that file: each kernel is
stored once, however many libraries call it. Scheduled GPU kernels are in the file; the output of
nvcc for their source is cached separately.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import tvm
from tvm.target import Target
from tvm_ffi.serialization import from_json_graph_str

from ...errors import LoadError
from ...runtime import cuda_runtime
from ...runtime.factory import FactoryModule
from ...runtime.metadata import Metadata
from ...runtime.weights import map_weights, write_weights
from ...target.nvcc import device_code
from ..codegen import compile_kernels
from ..codegen.link import Linked, assemble
from ..report import Report
from ..selection.schedule_source import ScheduleSource
from . import kernel_cache, library_file
from .key import library_key
from .warnings import Message, repeat

logger = kernel_cache.logger

# A larger library would evict too many other entries.
_LARGEST_SHARE = 0.5


@dataclass(frozen=True)
class CacheEntry:
    cache: kernel_cache.KernelCache
    key: str
    target: Target  # of `main`

    @staticmethod
    def of(
        bound: tvm.IRModule, target: Target, source: ScheduleSource, others: Sequence[object]
    ) -> CacheEntry | None:
        """The entry for a build that has no `obstacle`; None if it is not to be cached."""
        cache = kernel_cache.user_cache()
        if not cache.limit or not compile_kernels.has_linker():
            return None
        return CacheEntry(cache, library_key(bound, target, source, others), target)

    def restore(self, mod: tvm.IRModule, seconds: dict[str, float]) -> FactoryModule | None:
        """Restore the library; None if missing or partly damaged. `seconds` is for the report."""
        file = self.cache.open_library(self.key)
        if file is None:
            return None
        with file:
            try:
                description = library_file.read_description(file)
                library_file.require_weights(file, description)
                metadata = Metadata.from_json(description["metadata"])
                weights = map_weights(file, library_file.WEIGHTS_OFFSET, metadata)
            except (LoadError, OSError, ValueError) as error:
                logger.warning(
                    "kernel cache: %s is damaged (%s); the library is built again", file.name, error
                )
                return None
        code = {name: self.cache.get(key) for name, key in description["kernels"].items()}
        whole = {name: each for name, each in code.items() if each is not None}
        if len(whole) < len(code):
            return None
        # `tvm.ir.load_json` would first rewrite it in Python for older versions of TVM; the key has
        # the version that wrote this.
        lowered = from_json_graph_str(description["lowered"])
        if "cuda" in metadata.devices:
            cuda_runtime.missing()  # loaded before the device code is, where it can be
        with self.target, device_code(self.cache):
            executable = assemble(lowered, whole, self.target)
        repeat(description["messages"])
        report = Report.from_json(metadata.report)
        report.cache = "the library"
        report.seconds = seconds
        metadata = replace(metadata, report=report.to_json())
        return self._library(executable, metadata, weights, report, mod)

    def mapped(self, library: FactoryModule, linked: Linked) -> FactoryModule:
        """A cached library with its weights mapped; the same library if it was not cached."""
        self.cache.trim_at_times()
        file = None if self.cache.problem else self.cache.open_library(self.key)
        if file is None:
            return library
        with file:
            try:
                weights = map_weights(file, library_file.WEIGHTS_OFFSET, library.metadata)
            except LoadError as error:
                logger.warning("kernel cache: %s", error)
                return library
        return self._library(
            linked.executable, library.metadata, weights, library.report, library.ir_mod
        )

    def _library(
        self,
        executable: Any,
        metadata: Metadata,
        weights: Mapping[str, Any],
        report: object,
        mod: tvm.IRModule,
    ) -> FactoryModule:
        return FactoryModule(
            executable, metadata, weights, report, mod, self.target, kept_as=self.key
        )


class CacheWriter:
    """Caches a library; its weights are written while its kernels are compiled.

    As a context manager, it removes an entry that `start` began and `finish` did not complete.
    Without `slot` nothing is kept.
    """

    def __init__(self, slot: CacheEntry | None) -> None:
        self._slot = slot
        self._description: Future[Mapping[str, Any]] = Future()
        self._writer: threading.Thread | None = None

    def __enter__(self) -> CacheWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._give_up()

    def start(self, weights: Mapping[str, Any]) -> None:
        """Begin to write the weights of a library, in the order of its parameters."""
        self._give_up()
        metadata = Metadata("", (), ()).with_params(weights.items())
        slot = self._slot
        if slot is None or metadata.weights_nbytes > slot.cache.limit * _LARGEST_SHARE:
            return
        self._description = Future()
        write = partial(
            library_file.write,
            write_weights=lambda file: write_weights(file, metadata, weights),
            describe=self._description.result,
        )

        def keep() -> None:
            with contextlib.suppress(_GivenUpError):
                slot.cache.put_library(slot.key, write)

        self._writer = threading.Thread(target=keep, name="baton-keep")
        self._writer.start()

    def finish(
        self, library: FactoryModule, linked: Linked, messages: Sequence[Message]
    ) -> FactoryModule:
        """Cache the library whose weights `start` received, unless it is too large.

        `linked`: what its executable was made of. `messages`: warnings of the build, which a
        restored one repeats. Returns the library with weights mapped from the file: processes share
        them, and their pages are large. Returns the same library if nothing was kept.
        """
        slot = self._slot
        if slot is None or self._writer is None:
            return library
        if compile_kernels.has_cpu_kernels(linked.lowered, slot.target):
            return library
        self._description.set_result(
            {
                "lowered": tvm.ir.save_json(linked.lowered),
                "kernels": linked.kernels.keys,
                "metadata": library.metadata.to_json(),
                "messages": list(messages),
            }
        )
        self._writer.join()
        self._writer = None
        return slot.mapped(library, linked)

    def _give_up(self) -> None:
        if self._writer is not None:
            self._description.set_exception(_GivenUpError())
            self._writer.join()
            self._writer = None


class _GivenUpError(Exception):
    """The build of a library that was being cached did not finish."""
