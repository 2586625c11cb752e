"""Keeps finished libraries, so that a build that was done before is only put together again.

    build --hash--> in the cache? --yes--> lowered main + object code of its kernels + weights
                         |no
                         +--> all steps of the driver --> kept under the hash

The file of a library:

    b"baton library 1\\n", padded to 64 bytes
    the packed weights (`compiler.runtime.weights`), which are mapped, not read
    description     JSON: lowered functions, keys of the kernels, metadata, warnings, checksum
    trailer         SHA-256 of the description, its length

Object code is not in it: a kernel is kept once, however many libraries call it. A GPU's kernels
are, scheduled; what nvcc made of their source is kept for itself.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

import tvm
from tvm.target import Target
from tvm_ffi.serialization import from_json_graph_str

from ...errors import LoadError
from ...runtime import elf
from ...runtime.factory import FactoryModule
from ...runtime.metadata import ALIGNMENT, Metadata
from ...runtime.weights import map_weights, write_weights
from ...target.nvcc import device_code
from ..linking import codegen
from ..linking.link import Linked, assemble
from ..report import Report
from ..selection.schedule_source import ScheduleSource
from . import kernel_cache
from .library_key import library_key

logger = kernel_cache.logger

_MAGIC = b"baton library 1\n".ljust(ALIGNMENT, b"\0")
_TRAILER = struct.Struct("<32sQ")
# A larger library would push too much else out.
_LARGEST_SHARE = 0.5

Message = tuple[str, int, str]
"""Logger, level and text of a log message."""


@dataclass(frozen=True)
class Slot:
    """The place of one build's library in the cache.

    Attributes
    ----------
    cache : KernelCache
    key : str
    target : Target
        Of `main`.
    """

    cache: kernel_cache.KernelCache
    key: str
    target: Target

    @staticmethod
    def of(
        bound: tvm.IRModule, target: Target, source: ScheduleSource, others: Sequence[object]
    ) -> Slot | None:
        """Where the library of a build belongs, None where none is kept.

        Parameters
        ----------
        bound : tvm.IRModule
            With its parameters bound. `library_key.obstacle` found none.
        target, source, others
            As for `library_key`.
        """
        cache = kernel_cache.user_cache()
        if not cache.limit or not codegen.has_linker():
            return None
        return Slot(cache, library_key(bound, target, source, others), target)

    def restore(self, mod: tvm.IRModule, seconds: dict[str, float]) -> FactoryModule | None:
        """The library that is kept here, None if there is none or some of it is damaged.

        Parameters
        ----------
        mod : tvm.IRModule
            What is being built.
        seconds
            Of the steps of this build, for the report.
        """
        file = self.cache.open_library(self.key)
        if file is None:
            return None
        with file:
            try:
                description = _read_description(file)
                metadata = Metadata.from_json(description["metadata"])
                weights = map_weights(file, len(_MAGIC), metadata)
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
        with self.target, device_code(self.cache):
            executable = assemble(lowered, whole, self.target)
        for name, level, text in description["messages"]:
            logging.getLogger(name).log(level, "%s", text)
        report = Report.from_json(metadata.report)
        report.cache = "the library"
        report.seconds = seconds
        metadata = replace(metadata, report=report.to_json())
        return FactoryModule(executable, metadata, weights, report, mod, self.target)

    def keep(
        self, library: FactoryModule, linked: Linked, messages: Sequence[Message]
    ) -> FactoryModule:
        """Keep a library that was just built, unless it is too large for the cache.

        Parameters
        ----------
        library : FactoryModule
        linked : Linked
            What its executable was made of.
        messages
            Warnings of the build, which a restored one repeats.

        Returns
        -------
        library : FactoryModule
            With its weights mapped from the file, as later builds have them: other processes share
            them, and their pages are large. The same library where nothing was kept.
        """
        if library.metadata.weights_nbytes > self.cache.limit * _LARGEST_SHARE:
            return library
        if codegen.has_cpu_kernels(linked.lowered, self.target):
            return library

        def write(file: BinaryIO) -> None:
            file.write(_MAGIC)
            checksum = write_weights(file, library.metadata, library.params)
            description = {
                "lowered": tvm.ir.save_json(linked.lowered),
                "kernels": linked.kernels.keys,
                "metadata": library.metadata.to_json(),
                "messages": list(messages),
                "weights_checksum": checksum,
            }
            text = json.dumps(description).encode()
            file.write(text + _TRAILER.pack(hashlib.sha256(text).digest(), len(text)))

        self.cache.put_library(self.key, write)
        self.cache.trim_at_times()
        file = None if self.cache.problem else self.cache.open_library(self.key)
        if file is None:
            return library
        with file:
            try:
                weights = map_weights(file, len(_MAGIC), library.metadata)
            except LoadError as error:
                logger.warning("kernel cache: %s", error)
                return library
        executable, metadata = linked.executable, library.metadata
        return FactoryModule(
            executable, metadata, weights, library.report, library.ir_mod, self.target
        )


@contextmanager
def recorded_warnings() -> Iterator[list[Message]]:
    """The warnings that this thread logs under Baton's names, those of the cache left out."""
    handler = _Recorder()
    parent = logging.getLogger("baton")
    parent.addHandler(handler)
    try:
        yield handler.messages
    finally:
        parent.removeHandler(handler)


class _Recorder(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[Message] = []
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread and record.name != logger.name:
            self.messages.append((record.name, record.levelno, record.getMessage()))


def _read_description(file: BinaryIO) -> dict[str, Any]:
    """The checked description of a library's file.

    Raises
    ------
    ValueError
        A part of the file is not what was written.
    """
    end = file.seek(0, os.SEEK_END) - _TRAILER.size
    if end < len(_MAGIC):
        raise ValueError("it is too short")
    file.seek(end)
    digest, length = _TRAILER.unpack(file.read(_TRAILER.size))
    start = end - length
    if start < len(_MAGIC):
        raise ValueError("it is too short")
    file.seek(start)
    text = file.read(length)
    file.seek(0)
    if hashlib.sha256(text).digest() != digest or file.read(len(_MAGIC)) != _MAGIC:
        raise ValueError("its description is not what was written")
    description: dict[str, Any] = json.loads(text)
    if elf.range_checksum(file, len(_MAGIC), start) != description["weights_checksum"]:
        raise ValueError("its weights are not what was written")
    return description
