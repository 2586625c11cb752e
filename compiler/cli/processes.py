"""Worker processes as their parent sees them."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from compiler import errors
from compiler.support import isolated_python
from compiler.support.scoped_context import Closing

# The folder of the `compiler` package takes the place of the current one, which -c puts first
# and in which the user may have modules of the same names.
_PROGRAM = (
    "import os; cpus = [int(n) for n in sys.argv[1].split(',') if n]; "
    "cpus and os.sched_setaffinity(0, cpus); "
    "from compiler.cli.worker import serve; serve()"
)


class WorkerError(errors.BatonError, RuntimeError):
    """A worker process ended, or what it was asked for failed."""


class WorkerProcess(Closing):
    """A process that answers requests of `compiler.cli.worker`; ends with the `with` block.

    `name`: what error messages call it. `threads`: given to TVM and OpenMP through the environment,
    before anything is loaded. `environment`: further variables. `cpus`: CPUs to stay on; all by
    default.
    """

    def __init__(
        self,
        name: str,
        threads: int,
        environment: Mapping[str, str] | None = None,
        cpus: Sequence[int] = (),
    ) -> None:
        self.name = name
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `close`)
        own = {"TVM_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
        self._process = subprocess.Popen(
            isolated_python.running(_PROGRAM, ",".join(map(str, cpus))),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env={**os.environ, **own, **(environment or {})},
            encoding="utf-8",
            start_new_session=True,  # Ctrl-C is the parent's; the worker ends with its pipe
        )

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Send one request and wait for its answer.

        Raises BatonError: the same class that was raised in the worker, if it is one of
        `compiler.errors`. Raises WorkerError: anything else was raised there, or the process ended.
        """
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None and answers is not None
        try:
            requests.write(json.dumps({"do": do, **arguments}) + "\n")
            requests.flush()
            line = answers.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise WorkerError(f"{self.name}: its process ended while asked to {do}: {self._end()}")
        answer = json.loads(line)
        if "error" in answer:
            raise _error(self.name, answer["kind"], answer["error"])
        return answer

    def close(self) -> None:
        """End the process: it stops at the end of its input, or is killed after a while."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._stderr.close()

    def _end(self) -> str:
        """How the process ended, and the last line it printed."""
        code = self._process.wait()
        self._stderr.seek(0)
        lines = self._stderr.read().decode(errors="replace").strip().splitlines()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return f"{how}; {lines[-1]}" if lines else how


def _error(name: str, kind: str, text: str) -> errors.BatonError:
    known = getattr(errors, kind, None)
    if isinstance(known, type) and issubclass(known, errors.BatonError):
        return known(f"{name}: {text}")
    return WorkerError(f"{name}: {kind}: {text}")
