"""Checks replayed records against the unscheduled compute, once each; verdicts are kept on disk.

TensorIR's primitives keep what a function computes, or refuse. The check is for what they can't
see: a record matched to another compute, a weight packed in another order, and mistakes of the
compiler. It runs in a process of its own (see `check_worker.py`), and a kernel that is wrong, that
crashes or that hangs is not used.
"""

from __future__ import annotations

import hashlib
import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import tvm

from ...lowering.kernel_cache import KernelCache, user_cache
from .packing import Packing

_ROOT = Path(__file__).resolve().parents[3]
# The folder of the `compiler` package takes the place of the current one, which -c puts first.
_PROGRAM = (
    "import sys; sys.path[0] = sys.argv[1]; "
    "from compiler.auto_scheduler.ansor.check_worker import serve; serve()"
)
SECONDS = 120.0
_SUBFOLDER = "verdicts"
_BYTES = 10**7


@dataclass(frozen=True)
class Verdict:
    """Whether a scheduled function computes what the unscheduled one does.

    Attributes
    ----------
    right : bool
    reason : str
        Why not; empty if it does.
    error : float
        Largest error as a share of what is allowed.
    """

    right: bool
    reason: str = ""
    error: float = 0.0


@dataclass(frozen=True)
class Question:
    """A function, its scheduled form, and where the operands of the latter come from.

    Attributes
    ----------
    reference, scheduled : PrimFunc
    operands : tuple of (int, Packing)
        For each input of `scheduled` the reference's input that it is made from.
    results : int
        Number of results of both.
    target : dict
    """

    reference: Any
    scheduled: Any
    operands: tuple[tuple[int, Packing], ...]
    results: int
    target: dict[str, Any]

    def to_line(self) -> str:
        return json.dumps({
            "reference": str(tvm.ir.save_json(self.reference)),
            "scheduled": str(tvm.ir.save_json(self.scheduled)),
            "operands": [[index, packing.to_json()] for index, packing in self.operands],
            "results": self.results,
            "target": self.target,
        })  # fmt: skip


class Checker:
    """Answers questions by a worker process that is started when first needed.

    Parameters
    ----------
    cache : KernelCache, optional
        Where verdicts are kept; the user's by default.
    seconds : float
        After which a kernel that has not finished is not used.
    """

    def __init__(self, cache: KernelCache | None = None, seconds: float = SECONDS) -> None:
        self.cache = cache or verdict_cache()
        self.seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Checker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def check(self, question: Question) -> Verdict:
        """The verdict on a function, from the cache or from the worker."""
        line = question.to_line()
        key = hashlib.sha256(f"{tvm.__version__}\0{_code_version()}\0{line}".encode()).hexdigest()
        kept = self.cache.get(key)
        if kept is not None:
            return Verdict(**json.loads(kept))
        verdict = self._ask(line)
        self.cache.put(key, json.dumps(verdict.__dict__).encode())
        return verdict

    def _ask(self, line: str) -> Verdict:
        process = self._process or self._start()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(line.encode() + b"\n")
            process.stdin.flush()
            answer = self._read(process)
        except (BrokenPipeError, EOFError):
            self._stop()
            return Verdict(False, "the kernel crashed")
        except TimeoutError:
            self._stop()
            return Verdict(False, f"the check took longer than {self.seconds:.0f} s")
        if "failure" in answer:
            return Verdict(False, f"the kernel can't be compiled or run: {answer['failure']}")
        error = float(answer["error"])
        right = error <= 1.0  # false for NaN
        reason = "" if right else f"wrong numbers ({error:.1e} times the allowed error)"
        return Verdict(right, reason, error)

    def _start(self) -> subprocess.Popen[bytes]:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(_ROOT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
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
    """The folder beside the kernel cache; off when that is."""
    kernels = user_cache()
    return KernelCache(kernels.folder.parent / _SUBFOLDER, _BYTES if kernels.limit else 0)


def _code_version() -> str:
    """Changes with the code that checks."""
    sources: Sequence[str] = ("check.py", "check_worker.py", "packing.py")
    folder = Path(__file__).parent
    return hashlib.sha256(b"".join((folder / name).read_bytes() for name in sources)).hexdigest()
