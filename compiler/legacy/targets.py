"""`tvm.target` of TVM 0.18: target strings with options, and the functions that made them.

The tables of boards are facts of TVM 0.18's `python/tvm/target/target.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import tvm
from tvm.target import Target

from ..errors import TargetError
from ..target.config import checked_config, to_cli
from .patches import Patches

logger = logging.getLogger("baton.legacy")

_AARCH64_ANDROID = ("-mtriple=arm64-linux-android", "-mattr=+neon")
_AARCH64 = "-mtriple=aarch64-linux-gnu"
_ARMV7A = ("-mtriple=armv7a-linux-gnueabihf", "-mattr=+neon,+vfp4,+thumb2")
_ARM_BOARDS: dict[str, tuple[str, ...]] = {
    "pixel2": ("-model=snapdragon835", *_AARCH64_ANDROID),
    **dict.fromkeys(
        ("mate10", "mate10pro", "p20", "p20pro"), ("-model=kirin970", *_AARCH64_ANDROID)
    ),
    "rasp3b": ("-model=bcm2837", "-mtriple=armv7l-linux-gnueabihf", "-mattr=+neon"),
    "rasp4b": (
        "-model=bcm2711",
        "-mtriple=armv8l-linux-gnueabihf",
        "-mattr=+neon",
        "-mcpu=cortex-a72",
    ),
    "rasp4b64": ("-model=bcm2711", _AARCH64, "-mattr=+neon", "-mcpu=cortex-a72"),
    "rk3399": ("-model=rk3399", _AARCH64, "-mattr=+neon"),
    "pynq": ("-model=pynq", "-mtriple=armv7a-linux-eabi", "-mattr=+neon"),
    "ultra96": ("-model=ultra96", _AARCH64, "-mattr=+neon"),
    "beagleai": ("-model=beagleai", *_ARMV7A, "-mcpu=cortex-a15"),
    "stm32mp1": ("-model=stm32mp1", *_ARMV7A, "-mcpu=cortex-a7"),
    "thunderx": ("-model=thunderx", _AARCH64, "-mattr=+neon,+crc,+lse", "-mcpu=thunderxt88"),
}

# Attributes that a target of 0.18 had as Python attributes, and what a missing one meant.
_ATTRIBUTES: dict[str, Any] = {
    **{"libs": [], "model": "unknown"},
    **dict.fromkeys(("arch", "mattr", "mcpu", "mtriple"), ""),
    **dict.fromkeys(("max_function_args", "max_num_threads", "thread_warp_size"), 0),
    "max_shared_memory_per_block": 0,
}


def patch(patches: Patches) -> None:
    """Let `Target` read strings with options, and bring back the functions that made targets."""
    construct = Target.__init__

    def __init__(self: Any, target: Any, host: Any = None) -> None:
        if host is not None:
            construct(self, _config(target), _config(host))
        else:
            construct(self, _config(target))

    patches.set(Target, "__init__", __init__)
    for name, missing in _ATTRIBUTES.items():
        patches.add(Target, name, property(_attribute(name, missing)))
    patches.add(Target, "device_name", property(lambda self: str(self.attrs.get("device", ""))))
    for canonical in (
        *(canon_target, canon_target_and_host, canon_multi_target, canon_multi_target_and_host),
        *(canon_target_map_and_host,),
    ):
        patches.add(Target, canonical.__name__, staticmethod(canonical))
    for function in (arm_cpu, create, cuda, hexagon, rasp, *_OF_MODELS):
        patches.add(tvm.target, function.__name__, function)
    for name, unlike in (("micro", "c"), ("stm32", "c"), ("riscv_cpu", "llvm"), ("vta", "ext_dev")):
        for owner in (tvm.target, tvm.target.target):
            patches.add(owner, name, _gone(name, unlike))
    patches.add(tvm.target, "target_to_text", to_cli)
    patches.add(tvm.target, "VirtualDevice", virtual_device)


def canon_target(target: Any) -> Target | None:
    """Anything that names a target as one; None stays None."""
    return target if target is None or isinstance(target, Target) else Target(target)


def canon_target_and_host(target: Any, target_host: Any = None) -> tuple[Any, Any]:
    """A target that knows its host, and the host: the one given, or else the target's own."""
    target, host = canon_target(target), canon_target(target_host)
    if target is None:
        if host is not None:
            raise TargetError("there is a target_host without a target; give target= as well")
        return None, None
    if host is not None and target.host is None:
        target = Target(target, host)
    return target, target.host


def canon_multi_target(multi_targets: Any) -> list[Target] | None:
    """The targets that a target, a list of them, or a dict of device type to target names."""
    if multi_targets is None:
        return None
    if isinstance(multi_targets, Mapping) and "kind" not in multi_targets:
        return [Target(each) for each in multi_targets.values()]
    if isinstance(multi_targets, Sequence) and not isinstance(multi_targets, str):
        return [Target(each) for each in multi_targets]
    return [Target(multi_targets)]


def canon_multi_target_and_host(target: Any, target_host: Any = None) -> list[Target] | None:
    """As `canon_multi_target`; each knows its host."""
    found = canon_multi_target(target)
    if found is None:
        return None
    return [canon_target_and_host(each, target_host)[0] for each in found]


def canon_target_map_and_host(
    target_map: Mapping[Any, Any], target_host: Any = None
) -> tuple[dict[Target, Any], Any]:
    """A dict whose keys name targets, with targets that know their host as keys; and the host."""
    found = {canon_target_and_host(key, target_host)[0]: v for key, v in target_map.items()}
    return found, canon_target(target_host) or next((key.host for key in found), None)


def _config(target: Any) -> Any:
    """A target string with options as a dict; anything else as it is."""
    if not isinstance(target, str) or " " not in target.strip() or target.lstrip()[:1] == "{":
        return target
    dropped: list[str] = []
    config = checked_config(target, dropped)
    if dropped:
        logger.warning("%s: %s", target, "; ".join(dropped))
    return config


def _attribute(name: str, missing: Any) -> Any:
    def read(self: Target) -> Any:
        return self.attrs.get(name, missing)

    return read


def _options(options: str | Sequence[str] | None) -> list[str]:
    if options is None:
        return []
    return options.split() if isinstance(options, str) else list(options)


def _target(kind: str, *options: str) -> Target:
    return Target(" ".join([kind, *options]))


def virtual_device(device: Any = None, target: Any = None, memory_scope: str = "global") -> Any:
    """`tvm.target.VirtualDevice(device, target)`: what Relax calls a VDevice."""
    from tvm import relax

    kind = str(device.type) if device else "cpu"
    chosen = target or ("llvm" if kind == "cpu" else kind)
    return relax.VDevice(Target(chosen), device.index if device else 0, memory_scope or "global")


def create(target: Any) -> Target:
    """`tvm.target.create(text)`, as before `tvm.target.Target(text)`."""
    return Target(target)


def cuda(
    model: str = "unknown", arch: str | None = None, options: str | Sequence[str] | None = None
) -> Target:
    """A CUDA GPU; without `arch`, the one in this machine."""
    chosen = [f"-arch={arch}"] if arch else []
    return _target("cuda", f"-model={model}", *chosen, *_options(options))


def _maker(name: str, kind: str, *fixed: str) -> Any:
    """The function of a name that makes targets of a kind with some options set."""

    def make(model: str = "unknown", options: str | Sequence[str] | None = None) -> Target:
        return _target(kind, *fixed, f"-model={model}", *_options(options))

    make.__name__, make.__doc__ = name, f"A target of kind {kind} {' '.join(fixed)}".rstrip() + "."
    return make


_OF_MODELS = (
    *(_maker(device, "opencl", f"-device={device}") for device in ("adreno", "bifrost", "mali")),
    _maker("intel_graphics", "opencl", "-device=intel_graphics", "-thread_warp_size=16"),
    _maker("rocm", "rocm"),
)


def arm_cpu(model: str = "unknown", options: str | Sequence[str] | None = None) -> Target:
    """An Arm CPU by the name of its board; an unknown name becomes the model."""
    known = _ARM_BOARDS.get(model, (f"-model={model}",))
    fixed = ("-keys=arm_cpu,cpu", "-device=arm_cpu")
    return _target("llvm", *fixed, *known, *_options(options))


def rasp(options: str | Sequence[str] | None = None) -> Target:
    """A Raspberry Pi 3b."""
    return arm_cpu("rasp3b", options)


def hexagon(cpu_ver: str = "v68", **_kwargs: Any) -> Target:
    """Raises: Hexagon needs a toolchain that no wheel of TVM has."""
    raise TargetError(f"tvm.target.hexagon({cpu_ver!r}): this TVM has no Hexagon code generator")


def _gone(name: str, kind: str) -> Any:
    def refuse(*_args: Any, **_kwargs: Any) -> Target:
        raise TargetError(
            f"tvm.target.{name} is gone with the boards it described; write the target out, "
            f'for example "{kind} -mcpu=..."'
        )

    refuse.__name__, refuse.__doc__ = name, "Raises: gone."
    return refuse
