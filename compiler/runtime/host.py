"""Refuses libraries that this machine's CPU can't run, and devices that a library can't use."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from compiler.errors import IncompatibleDeviceError
from compiler.runtime import cuda_runtime
from compiler.runtime.metadata import Metadata

_MCPU = re.compile(r"mcpu\"?\s*[=:]\s*\"?([\w.+-]+)")


def require_cpu_features(metadata: Metadata, where: str) -> None:
    """Raise unless this machine's CPU has every feature that the library's code may use.

    `where`: the library, as the message names it.
    Raises IncompatibleDeviceError: names the missing features and the `-mcpu` of the build.
    """
    if not metadata.cpu_features:
        return
    from compiler.runtime.cpu import missing_features

    missing = list(missing_features(list(metadata.cpu_features)))
    if missing:
        match = _MCPU.search(metadata.target)
        built_for = f"-mcpu={match.group(1)}" if match else f"the target {metadata.target!r}"
        raise IncompatibleDeviceError(
            f"{where} was built for {built_for} and uses CPU features that this machine lacks: "
            f"{', '.join(missing)}; build the model for this CPU, or for a less demanding one "
            "such as -mcpu=x86-64-v3"
        )


def kind_of(device: Any) -> str:
    """The kind of a device here or on another machine: "cpu", "cuda"."""
    return device.type.rpartition(":")[2]


def arrange_devices(metadata: Metadata, devices: Sequence[Any], remote: bool = False) -> list[Any]:
    """The given devices in the order in which the executable numbers them.

    `devices`: in any order. The CPU need not be among them. `remote`: whether the library is on an
    RPC server, as its devices must be then. Returns one for each kind in `metadata.devices`, in
    that order.
    Raises IncompatibleDeviceError: a kind is missing, superfluous, given twice, or not present in
    this machine.
    """
    import tvm

    needed = ", ".join(metadata.devices)
    given: dict[str, Any] = {}
    for device in devices:
        if not isinstance(device, tvm.runtime.Device):
            raise IncompatibleDeviceError(
                f"library {metadata.mod_name!r} runs on {needed}: give a device such as "
                f"tvm.{metadata.devices[0]}(0), not {device!r:.80}"
            )
        if hasattr(device, "_rpc_sess") != remote:
            place, way = (
                "an RPC server",
                "give it a device of the session, such as session.cpu(0)",
            )
            if not remote:
                place, way = (
                    "this machine",
                    "upload it and use compiler.runtime.remote.load_module",
                )
            raise IncompatibleDeviceError(
                f"library {metadata.mod_name!r} is on {place} and can't run on {device}; {way}"
            )
        kind = kind_of(device)
        if kind in given:
            raise IncompatibleDeviceError(
                f"library {metadata.mod_name!r} runs on one device of each kind ({needed}); "
                f"got {given[kind]} and {device}"
            )
        given[kind] = device
    if "cpu" not in metadata.devices and len(given) > 1:
        given.pop("cpu", None)  # the host itself, which every executable has
    if "cpu" in metadata.devices and len(metadata.devices) > 1:
        given.setdefault("cpu", tvm.cpu(0))
    if set(given) != set(metadata.devices):
        names = ", ".join(str(device) for device in devices) or "no device"
        raise IncompatibleDeviceError(
            f"library {metadata.mod_name!r} was built for {needed} and can't run on {names}"
        )
    for device in given.values():
        lacking = cuda_runtime.missing() if device.type == "cuda" else None  # not of a remote one
        if lacking is not None:
            raise IncompatibleDeviceError(
                f"library {metadata.mod_name!r} needs {device}, and {lacking}"
            )
        if not device.exist:
            raise IncompatibleDeviceError(
                f"library {metadata.mod_name!r} needs {device}, which this machine does not have "
                "or whose driver TVM can't reach"
            )
    return [given[kind] for kind in metadata.devices]
