"""Inference sessions: arrays by name in and out, from any number of threads.

    session = library.session(num_threads=2)
    scores = session.run({"data": image})["scores"]

TVM gives every thread that runs kernels its own pool of workers, so four callers with two
workers each would keep eight threads busy. A session's requests are done by lanes instead: threads
of this process, each with one pool, which sessions of the same settings share. A lane takes one
request after the other in the order of their arrival. Callbacks of requests run on
their own thread, so that they may make requests themselves.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler.errors import InputError
from compiler.runtime import forks, thread_pool
from compiler.runtime.executor import GraphExecutor
from compiler.runtime.kv_cache import KVCache
from compiler.runtime.metadata import ALIGNMENT, TensorInfo, listed
from compiler.runtime.tensors import numpy_dtype, require_dtype
from compiler.tvm_workarounds.fast_import import tvm

if TYPE_CHECKING:
    from compiler.runtime.factory import FactoryModule

_logger = logging.getLogger("baton.runtime")


class Results(dict[str, np.ndarray]):
    """Outputs by name, in the model's order."""

    def __missing__(self, name: object) -> np.ndarray:
        raise KeyError(f"no output {name!r}; there are {listed(sorted(self))}")

    def __repr__(self) -> str:
        outputs = (f"{name}: {each.dtype}{list(each.shape)}" for name, each in self.items())
        return f"<{type(self).__name__}: {', '.join(outputs)}>"


class _Request(Future[Any]):
    """A future whose callbacks do not run on the lane that computed it.

    A lane that ran a callback could not serve the requests that the callback makes and waits for.
    """

    def do(self, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        """Compute the result, on the calling thread."""
        if not self.set_running_or_notify_cancel():
            return
        try:
            result = work(*arguments)
        except BaseException as error:
            self.set_exception(error)
        else:
            self.set_result(result)

    def add_done_callback(self, fn: Callable[[Future[Any]], object]) -> None:
        """Call `fn` with this future when it is done, after the callbacks that were added before.

        Callbacks of all requests of a process run one after the other on one thread. One that waits
        for another callback waits forever.
        """
        super().add_done_callback(lambda future: _callbacks().submit(_call_back, fn, future))


def _call_back(function: Callable[[Future[Any]], object], future: Future[Any]) -> None:
    try:
        function(future)
    except Exception:
        _logger.exception("a callback of a request failed")


class Session:
    """Runs a library for many threads; `FactoryModule.session` makes one.

    Every method may be called from any thread. A request sets all inputs, runs, and fetches the
    outputs, without another request in between.

    Parameters
    ----------
    library : FactoryModule
        With its weights.
    devices : sequence of tvm.runtime.Device
        As for an executor; the library's devices if empty.
    num_threads : int, optional
        Threads per request, at most 1024. The default is TVM_NUM_THREADS, else the number of cores
        that this process may use.
    parallel : int
        Requests that run concurrently, at most 1024. Each has its own intermediate tensors; they
        share the weights. Further requests wait in the order of their arrival.
    instrument : callable, optional
        Called around each call of the virtual machine, as `GraphExecutor.set_instrument` has it.

    Attributes
    ----------
    inputs, outputs : tuple of TensorInfo
        Names, shapes and dtypes, as in the model, without what a `KVCache` holds.
    """

    def __init__(
        self,
        library: FactoryModule,
        devices: Iterable[Any] = (),
        num_threads: int | None = None,
        parallel: int = 1,
        instrument: Callable[..., int] | None = None,
    ) -> None:
        for name, value in (("num_threads", num_threads), ("parallel", parallel)):
            if value is not None or name == "parallel":
                thread_pool.require_thread_count(name, value)
        kept = library.metadata.kv_cache
        reserved = {kept.rows, *(name for name, _ in kept.tensors)} if kept else set()
        self.inputs: tuple[TensorInfo, ...] = tuple(
            info for info in library.metadata.inputs if info.name not in reserved
        )
        self.outputs: tuple[TensorInfo, ...] = library.metadata.outputs
        self.num_threads = num_threads or default_threads()
        self.parallel = parallel
        self._library = library
        self._instrument = instrument
        self._devices = tuple(devices) or tuple(
            tvm.device(kind, 0) for kind in library.metadata.devices
        )
        self._idle: SimpleQueue[GraphExecutor] = SimpleQueue()
        self._process = 0
        self._lock = forks.ForkSafeLock()
        self._is_closed = False
        self._own_executors()

    def __repr__(self) -> str:
        state = ", closed" if self._is_closed else ""
        return (
            f"<Session: {listed(self.inputs)} -> {listed(self.outputs)}; "
            f"num_threads={self.num_threads}, parallel={self.parallel}{state}>"
        )

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the intermediate tensors; requests that were made before are still computed.

        Requests after that raise InputError. Closing twice does nothing. The library, and arrays
        and bindings of this session, stay valid; so do the threads, which sessions share.
        """
        with self._lock:
            self._is_closed = True
        while not self._idle.empty():
            with contextlib.suppress(Empty):
                self._idle.get_nowait()

    def _require_open(self) -> None:
        if self._is_closed:
            raise InputError("the session is closed; make another one with library.session()")

    def make_kv_cache(self) -> KVCache:
        """An empty cache for one sequence; raises InputError if the library has no cache."""
        return KVCache(self._library.metadata, self._devices[0])

    def run(
        self,
        inputs: Mapping[str, Any],
        outputs: Iterable[str] | None = None,
        kv_cache: KVCache | None = None,
    ) -> Results:
        """Compute the outputs of one request.

        Parameters
        ----------
        inputs : dict of str to array_like
            A value for every input, of its shape and dtype: an array of any library, a TVM tensor
            on any device, or a list or number. No array is cast.
        outputs : iterable of str, optional
            Names of the outputs to return; all by default.
        kv_cache : KVCache, optional
            Gets the request's rows after those of earlier requests. Required by libraries with a
            cache, and rejected by others.

        Returns
        -------
        results : Results
            A dict of str to numpy.ndarray, of the outputs' shapes and dtypes, whose KeyError names
            the outputs. The arrays belong to the caller.

        Raises
        ------
        InputError
            An input is missing, unknown or does not fit, there is no such output, or the cache is
            missing, full or of another library.
        """
        arguments = self._checked(inputs, outputs, kv_cache)
        # No caller can add callbacks to this future, so a plain one is enough.
        lanes = _lanes(self.num_threads, self.parallel)
        return lanes.submit(self._request, *arguments).result()

    def run_async(
        self,
        inputs: Mapping[str, Any],
        outputs: Iterable[str] | None = None,
        kv_cache: KVCache | None = None,
    ) -> Future[Results]:
        """Queue a request; as `run`, whose results and errors the future has.

        Inputs are read when the request's turn comes: don't change their arrays before it is done.
        """
        return self._submit(self._request, *self._checked(inputs, outputs, kv_cache))

    def _checked(
        self, inputs: Mapping[str, Any], outputs: Iterable[str] | None, kv_cache: KVCache | None
    ) -> tuple[dict[str, Any], list[int], KVCache | None]:
        """The arguments of `_request`; raises InputError as `run`."""
        self._require_open()
        names = {info.name for info in self.inputs}
        if set(inputs) != names:
            raise InputError(
                f"a request needs a value for each of {listed(self.inputs)}; "
                f"missing: {listed(sorted(names - set(inputs)))}; "
                f"unknown: {listed(sorted(set(inputs) - names))}"
            )
        for info in self.inputs:
            require_dtype(inputs[info.name], info)
        wanted = self._positions(outputs)
        if (kv_cache is None) != (self._library.metadata.kv_cache is None):
            raise InputError(
                "the library keeps no cache: leave kv_cache out"
                if kv_cache is not None
                else "the library adds rows to a cache: give kv_cache, which make_kv_cache() makes"
            )
        return dict(inputs), wanted, kv_cache

    def bind(
        self,
        inputs: Mapping[str, np.ndarray] | None = None,
        outputs: Mapping[str, np.ndarray] | None = None,
    ) -> Binding:
        """Bind the caller's arrays to inputs and outputs, for requests without new arrays.

        Parameters
        ----------
        inputs, outputs : dict of str to numpy.ndarray, optional
            Contiguous, of the tensor's shape and dtype, outputs writable; an array is allocated for
            each that is left out. Kernels read inputs in place if they begin at a multiple of 64
            bytes, as allocated ones do, else each run copies them. Results are copied into the
            arrays of the outputs.

        Raises
        ------
        InputError
            There is no such input or output, its shape is not fixed, or the array does not fit.
        """
        self._require_open()
        return Binding(
            self,
            self._make_executor(),
            _arrays("input", self.inputs, inputs or {}, writable=False),
            _arrays("output", self.outputs, outputs or {}, writable=True),
        )

    def _own_executors(self) -> SimpleQueue[GraphExecutor]:
        """The executors that no request has; a forked child makes its own.

        Those that other threads were using when the process was forked never come back there.
        """
        if self._process == os.getpid():
            return self._idle
        with self._lock:
            if self._process != os.getpid():
                self._idle = SimpleQueue()
                for _ in range(self.parallel):
                    self._idle.put(self._make_executor())
                self._process = os.getpid()
            return self._idle

    def _make_executor(self) -> GraphExecutor:
        executor = self._library[self._library.libmod_name](*self._devices)
        if self._instrument is not None:
            executor.set_instrument(self._instrument)
        return executor

    def _submit(self, work: Any, *arguments: Any) -> Future[Any]:
        request = _Request()
        _lanes(self.num_threads, self.parallel).submit(request.do, work, arguments)
        return request

    def _request(
        self, inputs: dict[str, Any], wanted: list[int], kv_cache: KVCache | None
    ) -> Results:
        idle = self._own_executors()
        try:
            executor = idle.get_nowait()  # there is one for each lane
        except Empty:  # the session was closed after the request was made
            executor = self._make_executor()
        try:
            if kv_cache is not None:
                executor.use_kv_cache(kv_cache)
            executor.set_input(inputs)
            executor.run()
            return Results(
                (self.outputs[index].name, executor.get_output(index).numpy()) for index in wanted
            )
        finally:
            if not self._is_closed:
                idle.put(executor)

    def _positions(self, outputs: Iterable[str] | None) -> list[int]:
        positions = {info.name: index for index, info in enumerate(self.outputs)}
        names = positions if outputs is None else list(outputs)
        for name in names:
            if name not in positions:
                raise InputError(f"no output {name!r}; there are {listed(self.outputs)}")
        return [positions[name] for name in names]


class Binding:
    """Arrays that are a session's inputs and outputs; `Session.bind` makes one.

    Attributes
    ----------
    inputs, outputs : dict of str to numpy.ndarray
        Fill the inputs, run, read the outputs.
    """

    def __init__(
        self,
        session: Session,
        executor: GraphExecutor,
        inputs: dict[str, np.ndarray],
        outputs: dict[str, np.ndarray],
    ) -> None:
        self.inputs, self.outputs = inputs, outputs
        self._session = session
        self._executor = executor
        self._copied: dict[str, np.ndarray] = {}
        self._process = os.getpid()
        self._bind()

    def _bind(self) -> None:
        for name, array in self.inputs.items():
            try:
                self._executor.set_input_zero_copy(name, array)
            except InputError:  # read-only, not aligned, or the device has its own memory
                self._copied[name] = array

    def run(self) -> dict[str, np.ndarray]:
        """Run with what the inputs hold now; returns `outputs`."""
        return self.run_async().result()

    def run_async(self) -> Future[dict[str, np.ndarray]]:
        """Queue a run; leave the arrays alone until it is done."""
        return self._session._submit(self._run)

    def _run(self) -> dict[str, np.ndarray]:
        if self._process != os.getpid():  # a fork may have come in the middle of a run
            self._executor, self._process = self._session._make_executor(), os.getpid()
            self._bind()
        self._executor.set_input(self._copied)
        self._executor.run()
        for index, array in enumerate(self.outputs.values()):
            self._executor.get_output(index, array)
        return self.outputs


def default_threads() -> int:
    """The default number of threads of one request: TVM_NUM_THREADS, else the cores.

    Raises
    ------
    InputError
        TVM_NUM_THREADS is larger than the limit.
    """
    text = os.environ.get("TVM_NUM_THREADS", "").lstrip("0")
    if text.isascii() and text.isdecimal():
        is_long = len(text) > len(str(thread_pool.MAX_THREADS))
        count = thread_pool.MAX_THREADS + 1 if is_long else int(text)
        if count > thread_pool.MAX_THREADS:
            raise InputError(
                f"TVM_NUM_THREADS={text:.60} is too large; set it to at most "
                f"{thread_pool.MAX_THREADS}"
            )
        return count
    return min(len(os.sched_getaffinity(0)), thread_pool.MAX_THREADS)


def _arrays(
    what: str, infos: tuple[TensorInfo, ...], given: Mapping[str, np.ndarray], writable: bool
) -> dict[str, np.ndarray]:
    """The given arrays, checked, and new ones for the others."""
    unknown = set(given) - {info.name for info in infos}
    if unknown:
        raise InputError(f"no {what} {sorted(unknown)}; there are {listed(infos)}")
    arrays = {}
    for info in infos:
        array = given.get(info.name)
        if array is None:
            if not info.is_static:
                raise InputError(
                    f"{what} {info} has no fixed shape, so no array can be bound to it"
                )
            array = _allocate(info)
        fits = (
            isinstance(array, np.ndarray)
            and array.shape == info.shape
            and array.dtype == numpy_dtype(info)
            and array.flags.c_contiguous
            and (array.flags.writeable or not writable)
        )
        if not fits:
            raise InputError(
                f"{what} {info} needs a contiguous{' writable' if writable else ''} numpy array of "
                "its shape and dtype"
            )
        arrays[info.name] = array
    return arrays


def _allocate(info: TensorInfo) -> np.ndarray:
    """Zeros that begin at a multiple of ALIGNMENT bytes."""
    memory = np.zeros(info.nbytes + ALIGNMENT, "uint8")
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + info.nbytes].view(numpy_dtype(info)).reshape(info.static_shape)


_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}
_callback_pools: list[ThreadPoolExecutor] = []
_pools_lock = threading.Lock()


def _lanes(num_threads: int, parallel: int) -> ThreadPoolExecutor:
    """`parallel` threads, each of which runs kernels with `num_threads`."""
    with _pools_lock:
        pool = _pools.get((num_threads, parallel))
        if pool is None:
            pool = _pools[num_threads, parallel] = ThreadPoolExecutor(
                parallel, "baton-lane", thread_pool.configure, (num_threads,)
            )
        return pool


def _callbacks() -> ThreadPoolExecutor:
    """The thread of this process that calls back."""
    with _pools_lock:
        if not _callback_pools:
            _callback_pools.append(ThreadPoolExecutor(1, "baton-callbacks"))
        return _callback_pools[0]


def _after_fork() -> None:
    """A child has none of the threads, so it starts its own."""
    global _pools_lock
    _pools_lock = threading.Lock()
    _pools.clear()
    _callback_pools.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
