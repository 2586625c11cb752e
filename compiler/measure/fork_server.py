"""A warm process that forks one child for each request: what a worker process runs.

The fork server has imported TVM and generated code once, so that a child starts in milliseconds,
and it never runs a kernel itself, so that it has no threads that a fork would lose. It reads
frames (8 bytes of length, a pickle) from stdin and answers each with one frame on stdout:

    (payload, timeout, memory, modules)
        ->  ("value", result) | ("raised", text) | ("timeout", "") | ("died", how)
            | ("memory", text)
    None
        ->  no answer; the process ends unless something is asked for within `IDLE_SECONDS`

Frames come from the process that started the fork server, over private pipes.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import pickle
import resource
import select
import signal
import struct
import sys
import tempfile
import time
from typing import Any, BinaryIO

IDLE_SECONDS = 30
_LENGTH = struct.Struct("<Q")
_PR_SET_PDEATHSIG = 1


def write_frame(stream: BinaryIO, value: Any) -> None:
    """Write one pickled value."""
    data = pickle.dumps(value)
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def read_frame(stream: BinaryIO) -> Any:
    """Read one pickled value. Raises EOFError: the stream ended."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    size = _LENGTH.unpack(head)[0]
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return pickle.loads(data)


def serve() -> None:
    """Answer requests until stdin ends."""
    requests = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever libraries print
    _generate_code_once()
    while True:
        try:
            request = read_frame(requests)
        except EOFError:
            os._exit(0)  # there is nothing to clean up, and unloading TVM takes long
        signal.alarm(IDLE_SECONDS if request is None else 0)
        if request is None:
            continue
        payload, timeout, memory, modules = request
        for module in modules:  # costs nothing the second time
            importlib.import_module(module)
        with tempfile.TemporaryFile() as stderr:
            write_frame(answers, _in_child(payload, timeout, memory, stderr))


def _generate_code_once() -> None:
    """LLVM sets itself up at its first use."""
    import tvm
    from tvm import te

    read = te.placeholder((4,), name="read")
    double = te.compute((4,), lambda i: read[i] * 2, name="double")
    tvm.compile(te.create_prim_func([read, double]), tvm.target.Target({"kind": "llvm"}))


def _in_child(payload: bytes, timeout: float, memory: int, stderr: BinaryIO) -> tuple[str, Any]:
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receive)
        _work(payload, memory, os.fdopen(send, "wb"), stderr)
    os.close(send)
    with os.fdopen(receive, "rb", buffering=0) as answer:
        data, in_time = _read_all(answer, child, timeout)
    if not in_time:
        _kill(child)
    _, status = os.waitpid(child, 0)
    if not in_time:
        return "timeout", ""
    if data:
        kind, value = pickle.loads(data)
        return kind, value
    return "died", _how(status, stderr)


def _read_all(answer: Any, child: int, timeout: float) -> tuple[bytes, bool]:
    """Read the child's output until it ends; report whether it ended in time."""
    deadline = time.monotonic() + timeout
    parts: list[bytes] = []
    parent = sys.stdin.fileno()
    while True:
        left = deadline - time.monotonic()
        ready, _, _ = select.select([answer, parent], [], [], max(left, 0))
        if parent in ready:  # nothing is asked while an answer is due: the parent ended
            _kill(child)
            os._exit(1)
        if answer not in ready:
            return b"", False
        part = answer.read(1 << 16)
        if not part:
            return b"".join(parts), True
        parts.append(part)


def _kill(child: int) -> None:
    """Kill the child's process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)


def _how(status: int, stderr: BinaryIO) -> str:
    stderr.seek(0)
    lines = stderr.read().decode(errors="replace").strip().splitlines()
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        how = f"killed by {signal.Signals(number).name}"
    else:
        how = f"exit code {os.WEXITSTATUS(status)}"
    return f"{how}; {lines[-1]}" if lines else how


# --- the child ---------------------------------------------------------------------------


def _work(payload: bytes, memory: int, answer: BinaryIO, stderr: BinaryIO) -> None:
    """Do what was asked for, answer, and end; never returns."""
    os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(stderr.fileno(), 1)
    os.dup2(stderr.fileno(), 2)
    if memory:
        limit = _data_bytes() + memory
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        function, arguments = pickle.loads(payload)
        outcome = ("value", function(*arguments))
    except MemoryError as error:
        outcome = ("memory", str(error))
    except BaseException as error:  # also SystemExit: it ends this process alone
        text = (str(error).strip() or type(error).__name__).splitlines()
        is_memory = any("bad_alloc" in line or "out of memory" in line.lower() for line in text)
        outcome = ("memory" if is_memory else "raised", f"{type(error).__name__}: {text[-1]}")
    answer.write(pickle.dumps(outcome))
    answer.flush()
    os._exit(0)


def _data_bytes() -> int:
    """Bytes that RLIMIT_DATA counts for this process now."""
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("VmData:"):
                return int(line.split()[1]) * 1024
    return 0
