"""Validate replayed records against the unscheduled compute, once each; cache verdicts on disk.

TensorIR's primitives preserve semantics or raise. The check covers what they can't detect: a record
matched to another compute, a weight packed in another order, and compiler bugs. It runs in a child
process (see `worker.py`). A kernel that is wrong, crashes or hangs is not used.

A build asks in two steps, so that the check costs it little:

    a record is chosen   --begin-->           worker: a sample of the right results, by numpy
    everything compiled  --check_compiled-->  worker: runs the build's own object code
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import selectors
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import tvm
from tvm.libinfo import find_libtvm_runtime
from tvm.support import cc

from ...errors import RecordError
from ...records.ansor.packing import Packing
from ...support import isolated_python
from ...support.source_fingerprint import code_version
from ...support.tempdir import TemporaryFolder
from ..cache.kernel_cache import KernelCache, user_cache
from .reference_graph import plan_of

logger = logging.getLogger("baton.auto_scheduler")

# The folder of the `compiler` package takes the place of the current one, which -c puts first.
_PROGRAM = "from compiler.lowering.validate.worker import serve; serve()"
SECONDS = 120.0
_SUBFOLDER = "verdicts"
_BYTES = 10**7


@dataclass(frozen=True)
class ValidationResult:
    """Whether a scheduled function computes what the unscheduled one does."""

    right: bool
    reason: str = ""  # why not; empty if it does
    error: float = 0.0  # largest error as a share of what is allowed


@dataclass(frozen=True)
class ValidationJob:
    """A function, its scheduled form, and where the operands of the latter come from."""

    reference: Any
    scheduled: Any
    # For each input of `scheduled` the reference's input that it is made from
    operands: tuple[tuple[int, Packing], ...]
    results: int  # number of results of both
    target: dict[str, Any]

    def to_json(self) -> str:
        try:
            plan = plan_of(self.reference)
        except RecordError as error:
            logger.debug("a reference that is compiled: %s", error)
            plan = None
        params = list(self.reference.params)
        return json.dumps({
            "plan": plan,
            "reference": "" if plan else str(tvm.ir.save_json(self.reference)),
            "tensors": [
                {"shape": [int(dim) for dim in param.shape], "dtype": str(param.dtype)}
                for param in params
            ],
            "scheduled": str(tvm.ir.save_json(self.scheduled)),
            "operands": [[index, packing.to_json()] for index, packing in self.operands],
            "results": self.results,
            "target": self.target,
        })  # fmt: skip

    @cached_property
    def text(self) -> str:
        return self.to_json()

    @cached_property
    def key(self) -> str:
        """Cache key of its verdict."""
        version = f"{tvm.__version__}\0{code_version()}\0"
        return hashlib.sha256((version + self.text).encode()).hexdigest()


class Checker:
    """Asks a worker, started when needed; a kernel that takes more than `seconds` is not used."""

    def __init__(self, cache: KernelCache | None = None, seconds: float = SECONDS) -> None:
        self.cache = cache or verdict_cache()
        self.seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: TemporaryFolder | None = None
        self._known: dict[str, ValidationResult] = {}
        self._begun: set[str] = set()

    def __enter__(self) -> Checker:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def known(self, question: ValidationJob) -> ValidationResult | None:
        """The verdict of this checker or of an earlier process; None if there is none yet."""
        found = self._known.get(question.key)
        if found is None:
            kept = self.cache.get(question.key)
            found = ValidationResult(**json.loads(kept)) if kept is not None else None
        return found

    def check(self, question: ValidationJob) -> ValidationResult:
        """The verdict on a function, which the worker compiles if it is not known."""
        return self.known(question) or self._ask(question, {})

    def begin(self, question: ValidationJob) -> None:
        """Let the worker compute the expected results while the function is compiled here."""
        if question.key not in self._begun:
            self._begun.add(question.key)
            with contextlib.suppress(BrokenPipeError):
                self._send({"expect": str(self._file(question))})

    def check_compiled(
        self, questions: Mapping[str, ValidationJob], code: Mapping[str, bytes]
    ) -> dict[str, ValidationResult]:
        """Verdicts on functions by symbol; the worker compiles those without object `code`."""
        verdicts = {symbol: self.known(question) for symbol, question in questions.items()}
        unknown = [symbol for symbol, verdict in verdicts.items() if verdict is None]
        compiled = [symbol for symbol in unknown if symbol in code]
        library = self._linked({symbol: code[symbol] for symbol in compiled})
        for symbol in unknown:
            how = {"code": str(library), "symbol": symbol, "runtime": _runtime_library()}
            verdicts[symbol] = self._ask(questions[symbol], how if symbol in compiled else {})
        return {symbol: verdict for symbol, verdict in verdicts.items() if verdict is not None}

    def _linked(self, code: Mapping[str, bytes]) -> Path:
        """One library of several functions."""
        folder = self._workplace()
        library, objects = folder / f"kernels{len(list(folder.glob('*.so')))}.so", []
        for number, content in enumerate(code.values()):
            objects.append(str(folder / f"{number}.o"))
            Path(objects[-1]).write_bytes(content)
        if objects:
            cc.create_shared(str(library), objects)
        return library

    def _workplace(self) -> Path:
        if self._folder is None:
            self._folder = TemporaryFolder("check")
        return Path(self._folder.name)

    def _file(self, question: ValidationJob) -> Path:
        path = self._workplace() / f"{question.key}.json"
        if not path.exists():
            path.write_text(question.text)
        return path

    def _ask(self, question: ValidationJob, how: Mapping[str, str]) -> ValidationResult:
        verdict = self._answer({"compare": str(self._file(question)), **how})
        self._known[question.key] = verdict
        self.cache.put(question.key, json.dumps(verdict.__dict__).encode())
        return verdict

    def _answer(self, request: Mapping[str, str]) -> ValidationResult:
        try:
            answer = self._read(self._send(request))
        except (BrokenPipeError, EOFError):
            self._stop()
            return ValidationResult(False, "the kernel crashed")
        except TimeoutError:
            self._stop()
            return ValidationResult(False, f"the check took longer than {self.seconds:.0f} s")
        if "failure" in answer:
            return ValidationResult(
                False, f"the kernel can't be compiled or run: {answer['failure']}"
            )
        error = float(answer["error"])
        right = error <= 1.0  # false for NaN
        reason = "" if right else f"wrong numbers ({error:.1e} times the allowed error)"
        return ValidationResult(right, reason, error)

    def _send(self, request: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Write one line, which is short enough never to wait for the worker to read it."""
        process = self._process or self._start()
        assert process.stdin is not None
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        return process

    def _start(self) -> subprocess.Popen[bytes]:
        self._process = subprocess.Popen(
            isolated_python.running(_PROGRAM),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is the parent's; the worker ends with its pipe
        )
        return self._process

    def _read(self, process: subprocess.Popen[bytes]) -> dict[str, Any]:
        assert process.stdout is not None
        descriptor, received = process.stdout.fileno(), b""
        deadline = time.monotonic() + self.seconds
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while not received.endswith(b"\n"):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise TimeoutError
                chunk = os.read(descriptor, 1 << 16)
                if not chunk:
                    raise EOFError
                received += chunk
        return json.loads(received)

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def verdict_cache() -> KernelCache:
    """The folder next to the kernel cache; disabled if that is."""
    kernels = user_cache()
    folder = kernels.folder and kernels.folder.parent / _SUBFOLDER
    return KernelCache(folder, _BYTES if kernels.limit else 0)


@cache
def _runtime_library() -> str:
    """TVM's runtime, which kernels call."""
    return str(find_libtvm_runtime())
