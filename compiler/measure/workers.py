"""Warm worker processes: a call costs milliseconds, and may crash, hang or fill the memory."""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import inspect
import os
import pickle
import queue
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from ..errors import BatonError
from ..support import isolated_python
from ..support.scoped_context import Closing
from .fork_server import read_frame, write_frame

# The folder of the `compiler` package takes the place of the current one, which -c puts first
# and in which the user may have modules of the same names.
_PROGRAM = "from compiler.measure.fork_server import serve; serve()"

# Functions of these packages are sent to a worker by name, all others with their code.
_IMPORTABLE = ("compiler", "schedules", "tvm", "tvm_ffi", "numpy")

PRELOAD = (
    "compiler.lowering.kernel_passes.pipeline",
    "compiler.measure.builder",
    "compiler.measure.rpc",
    "compiler.measure.runner",
    "compiler.measure.timing",
    "compiler.target.nvcc",
    "tvm.rpc",
    "tvm.s_tir",
)


class Outcome(NamedTuple):
    """Outcome of a call in a worker."""

    kind: str  # "value", "raised", "timeout", "died" or "memory"
    value: Any  # the function's result for "value"; else a one-line description


class WorkerPool(Closing):
    """Call functions in worker processes, at most `size` at a time.

    Each call runs in a child that is forked from a process which has TVM loaded and warm. A call
    that ends its process ends nothing else. Warm processes of a pool that was closed serve the
    pools that are made soon after.

    `environment`: further environment variables of the workers.
    """

    def __init__(self, size: int = 1, environment: dict[str, str] | None = None) -> None:
        self.size = size
        self._environment = {"OPENBLAS_NUM_THREADS": "1", **(environment or {})}
        self._free: queue.SimpleQueue[_ForkServer] = queue.SimpleQueue()
        self._all: list[_ForkServer] = []
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="baton-worker")

    def submit(
        self,
        function: Callable[..., Any],
        arguments: Sequence[Any],
        timeout: float,
        memory: int = 0,
        modules: Sequence[str] = (),
    ) -> Future[Outcome]:
        """Call a function of an installed package, or any that cloudpickle can send, in a worker.

        `timeout`: seconds after which the call is ended. `memory`: bytes that it may allocate; 0
        for no limit. `modules`: this package's modules that it needs, imported once for all calls.
        Raises BatonError: the function or its arguments can't be sent.
        """
        payload = _pickled(function, tuple(arguments))
        request = (payload, timeout, memory, (*PRELOAD, *modules))
        return self._threads.submit(self._call, request)

    def call(
        self,
        function: Callable[..., Any],
        arguments: Sequence[Any],
        timeout: float,
        memory: int = 0,
    ) -> Outcome:
        """`submit`, and wait."""
        return self.submit(function, arguments, timeout, memory).result()

    def _call(self, request: tuple) -> Outcome:
        server = self._take()
        try:
            return server.ask(request)
        finally:
            if server.is_alive:
                self._free.put(server)
            else:
                self._forget(server)

    def _take(self) -> _ForkServer:
        with contextlib.suppress(queue.Empty):
            return self._free.get_nowait()
        server = _idle.take(self._environment) or _ForkServer(self._environment)
        with self._lock:
            self._all.append(server)
        return server

    def _forget(self, server: _ForkServer) -> None:
        with self._lock:
            self._all.remove(server)
        server.close()

    def close(self) -> None:
        """End the workers; calls under way are ended too."""
        with self._lock:
            servers, self._all = self._all, []
        free = []
        with contextlib.suppress(queue.Empty):
            while True:
                free.append(self._free.get_nowait())
        for server in servers:
            if server in free:
                _idle.put(server)
            else:
                server.close()
        self._threads.shutdown()


class _ForkServer:
    """The parent's end of one `fork_server` process."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.conditions = _conditions(environment)
        self._process = subprocess.Popen(
            isolated_python.running(_PROGRAM),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **environment},
            start_new_session=True,  # Ctrl-C is the parent's; the worker ends with its pipe
        )

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, request: tuple) -> Outcome:
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None and answers is not None
        try:
            write_frame(requests, request)  # type: ignore[arg-type]
            return Outcome(*read_frame(answers))  # type: ignore[arg-type]
        except (EOFError, OSError, ValueError):
            self._process.kill()
            return Outcome("died", f"worker process ended with code {self._process.wait()}")

    def rest(self) -> bool:
        """Have the process end unless it is asked for something soon; False where it has ended."""
        requests = self._process.stdin
        assert requests is not None
        try:
            write_frame(requests, None)  # type: ignore[arg-type]
        except (OSError, ValueError):
            return False
        return True

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class _Idle:
    """Warm processes that no pool has at the moment."""

    def __init__(self) -> None:
        self._nurseries: list[_ForkServer] = []
        self._lock = threading.Lock()

    def put(self, server: _ForkServer) -> None:
        if server.rest():
            with self._lock:
                self._nurseries.append(server)
        else:
            server.close()

    def take(self, environment: dict[str, str]) -> _ForkServer | None:
        """One that a new process would be like, if there is one."""
        wanted = _conditions(environment)
        while True:
            with self._lock:
                fitting = [each for each in self._nurseries if each.conditions == wanted]
                if not fitting:
                    return None
                self._nurseries.remove(fitting[-1])
            if fitting[-1].ask((_pickled(abs, (-1,)), 60, 0, ())).kind == "value":
                return fitting[-1]
            fitting[-1].close()

    def close(self) -> None:
        with self._lock:
            servers, self._nurseries = self._nurseries, []
        for server in servers:
            if server.conditions[0] == os.getpid():
                server.close()


_idle = _Idle()
atexit.register(_idle.close)


def _conditions(environment: dict[str, str]) -> tuple[Any, ...]:
    """The process that starts a worker, and what the worker has from it."""
    folder = os.stat(".")
    return (
        os.getpid(),
        (folder.st_dev, folder.st_ino),
        os.sched_getaffinity(0),
        {**os.environ, **environment},
    )


def _pickled(function: Callable[..., Any], arguments: tuple[Any, ...]) -> bytes:
    by_value = importlib.util.find_spec("cloudpickle") is not None
    try:
        return (_with_code if by_value else pickle.dumps)((function, arguments))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        advice = "define templates at the top of a module or script"
        if not by_value:
            advice = "that takes cloudpickle, which is not installed: pip install 'baton-tvm[tune]'"
        raise BatonError(
            f"{function!r} and its arguments can't be sent to a worker process: {error}; {advice}"
        ) from error


def _with_code(value: Any) -> bytes:
    """Pickle so that the worker needs none of the user's modules."""
    import cloudpickle

    users = [module for module in _user_modules(value) if module.__name__ != "__main__"]
    for module in users:
        cloudpickle.register_pickle_by_value(module)
    try:
        return cloudpickle.dumps(value)
    finally:
        for module in users:
            cloudpickle.unregister_pickle_by_value(module)


def _user_modules(value: Any) -> list[ModuleType]:
    """Modules that define the functions which a candidate names in `user_functions`.

    Also those of what these functions call, and so on: a worker has no folder of the user's to
    import them from, and importing them would run their statements again.
    """
    names: set[str] = set()
    seen: set[int] = set()
    left = [each for item in value[1] for each in getattr(item, "user_functions", ())]
    while left:
        item = left.pop()
        item = inspect.unwrap(item) if callable(item) else item
        name = item.__name__ if isinstance(item, ModuleType) else getattr(item, "__module__", "")
        if id(item) in seen or not _is_users(str(name)):
            continue
        seen.add(id(item))
        names.add(name)
        if inspect.isfunction(item):
            left += _named_by(item)
        else:  # a class, or a module that is named as a whole
            left += [each for each in vars(item).values() if inspect.isfunction(each)]
    return [sys.modules[name] for name in sorted(names)]


def _named_by(function: FunctionType) -> Iterator[Any]:
    """Functions, classes and modules that a function names among its module's globals."""
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        codes += [each for each in code.co_consts if inspect.iscode(each)]
        for name in code.co_names:
            named = function.__globals__.get(name)
            if callable(named) or isinstance(named, ModuleType):
                yield named


def _is_users(name: str) -> bool:
    """Whether a module is one that workers do not find: a script, or beside one."""
    root = sys.modules.get(name.partition(".")[0])
    if name not in sys.modules or root is None or root.__name__ in _IMPORTABLE:
        return False
    places = [root.__file__] if getattr(root, "__file__", None) else getattr(root, "__path__", [])
    installed = [sysconfig.get_path("stdlib"), "site-packages", "dist-packages"]
    return name == "__main__" or any(
        not any(folder in str(place) for folder in installed) for place in places
    )
