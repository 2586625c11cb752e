"""Runs built candidates on devices that a TVM RPC tracker lends."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import BatonError
from ..records.measure_result import MeasureResult
from .builder import DEFAULT_MEMORY
from .candidate import BuildResult, Candidate, MeasureErrorNo, RunOptions
from .runner import LocalRunner

_logger = logging.getLogger("baton.measure")


class RPCRunner(LocalRunner):
    """Times candidates on devices registered with a tracker (`python -m tvm.exec.rpc_tracker`).

    Each candidate asks the tracker for a device, in a worker process of this machine: a device
    that hangs or drops the connection costs one candidate.

    `key`: under which the devices' servers registered. `port`: the tracker's. `priority`: among
    those who ask for a device. `timeout`: seconds for waiting for a device, sending the kernel and
    all its runs. `n_parallel`: devices to use at a time; as many as the tracker has by default.
    `others`: as for `LocalRunner`. Raises BatonError: no tracker answers, or it has no such device.
    """

    def __init__(
        self,
        key: str,
        host: str,
        port: int,
        priority: int = 1,
        timeout: float = 10,
        n_parallel: int | None = None,
        number: int = 4,
        repeat: int = 3,
        min_repeat_ms: int = 0,
        cooldown_interval: float = 0.1,
        enable_cpu_cache_flush: bool = False,
        check_correctness: bool = False,
        memory: int = DEFAULT_MEMORY,
    ) -> None:
        super().__init__(
            timeout, number, repeat, min_repeat_ms, cooldown_interval, enable_cpu_cache_flush,
            check_correctness, memory,
        )  # fmt: skip
        self.key, self.host, self.port, self.priority = key, host, port, priority
        if host != "localhost" and not host.startswith("127.") and host != "::1":
            _logger.warning(
                "RPC with %s has no password and no encryption: whoever reaches the tracker or its "
                "servers can run any code there; keep them on a private network or use a tunnel",
                host,
            )
        devices = self._devices()
        self.n_parallel = n_parallel or devices

    def _devices(self) -> int:
        """Servers that the tracker knows under the key; BatonError if it is silent or has none."""
        try:
            # TVM tries for a minute.
            socket.create_connection((self.host, self.port), self.timeout).close()
            count = _summary(self.host, self.port).get(self.key, 0)
        except Exception as error:
            raise BatonError(
                f"no RPC tracker answers at {self.host}:{self.port}: {error}"
            ) from error
        if not count:
            raise BatonError(
                f"the tracker at {self.host}:{self.port} has no device with the key {self.key!r}; "
                f"start one with: python -m tvm.exec.rpc_server --tracker {self.host}:{self.port} "
                f"--key {self.key}"
            )
        return count

    def _worker_function(self) -> Callable[..., MeasureResult]:
        return _run_there

    def _arguments(self, candidate: Candidate, built: BuildResult) -> tuple:
        place = (self.key, self.host, self.port, self.priority, self.timeout)
        return (candidate, built, self.options, self.ref_input, self.cooldown_interval, place)


def request_remote(
    device_key: str,
    host: str | None = None,
    port: int | None = None,
    priority: int = 1,
    timeout: float = 60,
) -> Any:
    """Session on a device of a tracker (default: TVM_TRACKER_HOST); BatonError without one."""
    from tvm import rpc

    host = host or os.environ.get("TVM_TRACKER_HOST")
    port = port or int(os.environ.get("TVM_TRACKER_PORT", 0))
    if not host or not port:
        raise BatonError("no tracker is named: set TVM_TRACKER_HOST and TVM_TRACKER_PORT")
    try:
        socket.create_connection((host, port), timeout).close()  # TVM tries for a minute
    except OSError as error:
        raise BatonError(f"no RPC tracker answers at {host}:{port}: {error}") from error
    tracker = rpc.connect_tracker(host, port)
    return tracker.request(device_key, priority=priority, session_timeout=timeout)


def check_remote(
    target: Any,
    device_key: str,
    host: str | None = None,
    port: int | None = None,
    priority: int = 100,
    timeout: float = 10,
) -> bool:
    """Whether a tracker lends a device of that key in time, and the device is there."""
    import tvm

    kind = str(tvm.target.Target(target).kind.name)
    found: list[bool] = []

    def ask() -> None:
        with suppress(OSError, RuntimeError):
            session = request_remote(device_key, host, port, priority, timeout)
            found.append(bool(session.device("cpu" if kind == "llvm" else kind, 0).exist))

    thread = threading.Thread(target=ask, daemon=True)  # a tracker without devices never answers
    thread.start()
    thread.join(timeout)
    return found == [True]


def _summary(host: str, port: int) -> dict[str, int]:
    """Number of servers, free or lent, for each key."""
    from tvm import rpc

    keys = [
        str(info["key"]).removeprefix("server:")
        for info in rpc.connect_tracker(host, port).summary()["server_info"]
    ]
    return {key: keys.count(key) for key in keys}


def _run_there(
    candidate: Candidate,
    built: BuildResult,
    options: RunOptions,
    ref_input: Sequence[np.ndarray] | None,
    cooldown: float,
    place: tuple[str, str, int, int, float],
) -> MeasureResult:  # runs in a worker

    from .timing import time_kernel

    key, host, port, priority, timeout = place
    start = time.perf_counter()
    session = request_remote(key, host, port, priority, timeout)
    name = os.path.basename(built.path)
    session.upload(built.path, name)
    try:
        device = session.device(candidate.device, 0)
        module = session.load_module(name)
        result = time_kernel(module, device, candidate, built.args, options, ref_input)
    finally:
        session.remove(name)
    time.sleep(cooldown)
    if result.error_no == MeasureErrorNo.NO_ERROR:
        result = replace(result, all_cost=time.perf_counter() - start - cooldown)
    return result
