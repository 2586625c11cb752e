"""Devices of arrays: `cpu()`, `gpu(0)`, and the one that new arrays go to."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from compiler.errors import ArrayError, UnavailableTargetError
from compiler.runtime import cuda_runtime

_KINDS = {"cpu": "cpu", "gpu": "cuda"}
_DEVICES: dict[tuple[str, int], Device] = {}


class _DefaultContext(type):
    """Gives Device the attribute `default_ctx` of MXNet 1.x."""

    @property
    def default_ctx(cls) -> Device:
        """The device that new arrays go to; assigning replaces it, in this thread."""
        return current_device()

    @default_ctx.setter
    def default_ctx(cls, device: Device) -> None:
        if not isinstance(device, Device):
            raise ArrayError(f"default_ctx must be a device, such as mx.cpu(), not {device!r}")
        _CURRENT.set((*_CURRENT.get()[:-1], device))


class Device(metaclass=_DefaultContext):
    """A device. In a `with` block, new arrays go to it.

    Parameters
    ----------
    device_type : str
        "cpu" or "gpu".
    device_id : int
        Which one of its kind.

    Raises
    ------
    ArrayError
        Unknown kind or a negative number.
    """

    __slots__ = ("device_id", "device_type")

    device_type: str
    device_id: int

    def __new__(cls, device_type: str, device_id: int = 0) -> Device:
        if device_type not in _KINDS:
            raise ArrayError(f"unknown device {device_type!r}; there are {', '.join(_KINDS)}")
        if isinstance(device_id, bool) or not isinstance(device_id, int) or device_id < 0:
            raise ArrayError(f"a device's number must be an int from 0 on, not {device_id!r}")
        # One object for each device, so that comparing devices costs nothing.
        key = (device_type, device_id)
        if key not in _DEVICES:
            made = super().__new__(cls)
            made.device_type, made.device_id = key
            _DEVICES.setdefault(key, made)
        return _DEVICES[key]

    def __reduce__(self) -> tuple[Any, ...]:
        return Device, (self.device_type, self.device_id)

    def __repr__(self) -> str:
        return f"{self.device_type}({self.device_id})"

    def __enter__(self) -> Device:
        _CURRENT.set((*_CURRENT.get(), self))
        return self

    def __exit__(self, *_: object) -> None:
        _CURRENT.set(_CURRENT.get()[:-1])

    @property
    def is_cpu(self) -> bool:
        """Whether numpy can read its memory."""
        return self.device_type == "cpu"

    def tvm_device(self) -> Any:
        """TVM's device; UnavailableTargetError if this machine, or this TVM, has no such device."""
        import tvm

        # Kernels know one CPU; the others are names for it.
        number = 0 if self.is_cpu else self.device_id
        device = tvm.runtime.device(_KINDS[self.device_type], number)
        lacking = None if self.is_cpu else cuda_runtime.missing()
        if lacking is not None:
            raise UnavailableTargetError(f"there is no device {self!r} on this machine: {lacking}")
        if not self.is_cpu and not device.exist:
            raise UnavailableTargetError(f"there is no device {self!r} on this machine")
        return device

    def target(self) -> str:
        """The target that programs on this device are compiled for."""
        return "llvm" if self.is_cpu else "cuda"


_CURRENT: ContextVar[tuple[Device, ...]] = ContextVar("current_device", default=())


def cpu(device_id: int = 0) -> Device:
    """The CPU."""
    return Device("cpu", device_id)


def gpu(device_id: int = 0) -> Device:
    """A GPU."""
    return Device("gpu", device_id)


def current_device() -> Device:
    """The device that new arrays go to: that of the innermost `with device:`, else the CPU."""
    chosen = _CURRENT.get()
    return chosen[-1] if chosen else Device("cpu", 0)


def num_gpus() -> int:
    """How many GPUs there are."""
    import tvm

    count = 0
    if cuda_runtime.missing() is not None:
        return 0
    while tvm.runtime.device("cuda", count).exist:
        count += 1
    return count


Context, current_context = Device, current_device  # MXNet 1.x's names
