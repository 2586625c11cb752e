"""GPU properties of this machine from NVIDIA's driver, without the CUDA runtime and TVM."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass, replace

from compiler.runtime import cuda_files
from schedules.cuda.limits import Limits, of_arch

LIBRARY = "libcuda.so.1"
_MAJOR, _MINOR, _SMS = 75, 76, 16
# Numbers of the driver's attributes (CUdevice_attribute in cuda.h), by field of `Limits`.
_ATTRIBUTES = {
    "threads_per_block": 1,
    "static_shared": 8,
    "registers_per_block": 12,
    "sms": _SMS,
    "threads_per_sm": 39,
    "shared_per_sm": 81,
    "registers_per_sm": 82,
    "shared_per_block": 97,
    "blocks_per_sm": 106,
    "reserved_shared": 111,
}


@dataclass(frozen=True)
class Driver:
    version: str  # of the latest CUDA that it runs, such as "13.0"
    devices: tuple[Limits, ...]  # one for each GPU that this process may use; `device` is its name


def driver() -> Driver | str:
    """The driver and its GPUs, or in a sentence why there is none."""
    try:
        library = ctypes.CDLL(cuda_files.library(LIBRARY) or LIBRARY)
    except OSError:
        return f"there is no {LIBRARY}: NVIDIA's driver is not installed, or not in this container"
    version = ctypes.c_int()
    error = library.cuDriverGetVersion(ctypes.byref(version)) or library.cuInit(0)
    if error:
        return f"NVIDIA's driver does not start: its error {error} (100: there is no GPU)"
    text = f"{version.value // 1000}.{version.value % 1000 // 10}"
    return Driver(text, tuple(_devices(library)))


def unlike_table(arch: str) -> dict[str, int]:
    """Attributes of the first GPU that its architecture's table lacks; empty if in the table."""
    found = driver()
    if isinstance(found, str) or not found.devices:
        return {}
    device, table = found.devices[0], of_arch(arch)
    names = {
        "max_shared_memory_per_block": "shared_per_block",
        "max_threads_per_block": "threads_per_block",
        "registers_per_block": "registers_per_block",
    }
    return {
        name: getattr(device, field)
        for name, field in names.items()
        if getattr(device, field) != getattr(table, field)
    }


def _devices(library: ctypes.CDLL) -> Iterator[Limits]:
    count = ctypes.c_int()
    if library.cuDeviceGetCount(ctypes.byref(count)):
        return
    for index in range(count.value):
        device = ctypes.c_int()
        name = ctypes.create_string_buffer(256)
        if library.cuDeviceGet(ctypes.byref(device), index):
            continue
        library.cuDeviceGetName(name, len(name), device)
        major, minor = (_attribute(library, number, device) for number in (_MAJOR, _MINOR))
        values = {
            field: _attribute(library, number, device) for field, number in _ATTRIBUTES.items()
        }
        table = of_arch(f"sm_{major or 0}{minor or 0}")
        known = {field: value for field, value in values.items() if value is not None}
        yield replace(table, device=name.value.decode("utf-8", "replace"), **known)


def _attribute(library: ctypes.CDLL, number: int, device: ctypes.c_int) -> int | None:
    """A device's attribute; None where the driver does not know it."""
    value = ctypes.c_int()
    return (
        None if library.cuDeviceGetAttribute(ctypes.byref(value), number, device) else value.value
    )
