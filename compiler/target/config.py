"""Forms of a target -> one dict as TVM 0.27 takes it, its kind, attributes and values checked."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeAlias

import tvm
from tvm.target import Target
from tvm.target.target import TargetKind

from compiler.errors import TargetError, UnavailableTargetError
from compiler.runtime import cuda_runtime
from compiler.support.nearest import nearest

from . import cpu, text

TargetLike: TypeAlias = Target | Mapping[str, Any] | str

CPU_KINDS = frozenset({"llvm", "c"})
# Kinds that TVM 0.18 or an older release had, some only when built with the backend.
_GONE_KINDS = frozenset(
    {
        *("stackvm", "hybrid", "aocl", "aocl_sw_emu", "sdaccel", "ccompiler", "opengl"),
        *("cutlass", "cublas", "cudnn", "tensorrt", "ethos-u", "ethos-n", "cmsis-nn", "micro_dev"),
    }
)
# Target attributes of older releases that became arguments of relay.build or went away.
_GONE_ATTRIBUTES = frozenset(
    {"link-params", "runtime", "executor", "system-lib", "interface-api", "unpacked-api"}
)
_RENAMED_ATTRIBUTES = {"target": "mtriple"}
# Prefix of what a Target's config says of its CPU, which TVM computes anew.
_COMPUTED = "feature."
# Kinds other than llvm whose code LLVM makes -> triple that lists their CPUs.
_LLVM_TRIPLES = {"hexagon": "hexagon", "rocm": "amdgcn-amd-amdhsa-hcc"}
_CUDA_ARCHITECTURE = re.compile(r"sm_[1-9]\d{1,2}[af]?")
_ARCHITECTURE_ATTRIBUTE = {"cuda": "arch", "nvptx": "mcpu"}
_CHOICES = {"jit": ("mcjit", "orcjit"), "mfloat-abi": ("soft", "hard"), "opt-level": (0, 1, 2, 3)}
# Fields of a config that are read apart, and attributes that no message should propose.
_FIELDS = frozenset({"kind", "tag"})
_INTERNAL = frozenset({"from_device", "target_device_type"})
# A message lists no more names than this.
_BOOLEANS = {"1": True, "true": True, "0": False, "false": False}


def checked_config(target: TargetLike, dropped: list[str]) -> dict[str, Any]:
    """Config of a target, checked, with defaults; `dropped` gets what was left out or renamed."""
    if isinstance(target, Target):
        config = config_of_object(target)
    elif isinstance(target, Mapping):
        config = _config_of_mapping(target, dropped)
    elif isinstance(target, str):
        config = _config_of_string(target, dropped)
    else:
        raise TargetError(
            f"a target is a string, a dict or a tvm.target.Target, not {type(target).__name__}; "
            "for several targets, give each subgraph its own"
        )
    if "host" in config:
        config["host"] = checked_host(config["host"], dropped)
    _check_values(config)
    return config


def checked_host(host: TargetLike, dropped: list[str]) -> dict[str, Any]:
    """Config dict of a target host; what such a host names as its own host has no meaning."""
    if isinstance(host, Target):
        host = config_of_object(host)
    if isinstance(host, Mapping):
        host = {name: value for name, value in host.items() if name != "host"}
    config = checked_config(host, dropped)
    config.pop("host", None)
    if config["kind"] not in CPU_KINDS:
        raise TargetError(f"target host {config['kind']!r} is not a CPU; pass llvm or c")
    return config


def config_of_object(target: Target) -> dict[str, Any]:
    """Config dict of a Target as it is, host included, without what TVM adds to it."""
    config = {
        name: value
        for name, value in _plain(target.export()).items()
        if name != "tag" and not name.startswith(_COMPUTED)
    }
    # TVM writes its own triple into an llvm target that was made without CPU and triple.
    if "mcpu" not in config and config.get("mtriple") == cpu.system_triple():
        del config["mtriple"]
    if target.host is not None:
        config["host"] = target.host
    return config


def _config_of_mapping(target: Mapping[str, Any], dropped: list[str]) -> dict[str, Any]:
    given = {str(name): value for name, value in target.items()}
    tag = given.pop("tag", "")
    if tag:
        config = _config_of_tag(str(tag))
        if given.pop("kind", config["kind"]) != config["kind"]:
            raise TargetError(f"tag {tag!r} is of kind {config['kind']!r}; leave the kind out")
    elif "kind" not in given:
        raise TargetError(f"target {dict(target)!r} names no kind; add for example 'kind': 'llvm'")
    else:
        config = {"kind": _checked_kind(str(given.pop("kind")))}
    types = _option_types(config["kind"])
    for name, value in given.items():
        current = _current_name(name, config["kind"], types, dropped)
        if current is not None:
            typed = _typed(config["kind"], current, types[current], value)
            _set_once(config, current, typed, given)
    return config


def _config_of_string(target: str, dropped: list[str]) -> dict[str, Any]:
    if target.lstrip().startswith("{"):
        return _config_of_mapping(_read_json(target), dropped)
    words = text.read(target)
    if "/" in words.name or (not _is_kind(words.name) and words.name in tvm.target.list_tags()):
        config = _config_of_tag(words.name)
    else:
        config = {"kind": _checked_kind(words.name)}
    types = _option_types(config["kind"])
    for name, value in words.options.items():
        current = _current_name(name, config["kind"], types, dropped)
        if current is not None:
            converted = _converted(config["kind"], current, types[current], value)
            _set_once(config, current, converted, words.options)
    return config


def _config_of_tag(tag: str) -> dict[str, Any]:
    tags = [str(name) for name in tvm.target.list_tags()]
    if tag not in tags:
        raise TargetError(f"no target has the tag {tag!r}" + nearest(tag, tags))
    return config_of_object(Target(tag))


def _is_kind(name: str) -> bool:
    return any(name == str(kind) for kind in Target.list_kinds())


def _checked_kind(kind: str) -> str:
    if kind in _GONE_KINDS:
        raise UnavailableTargetError(
            f"target kind {kind!r} belongs to older TVM releases and is gone from TVM 0.27; "
            "build for llvm or cuda"
        )
    if kind == "composite":
        raise TargetError(
            "a composite target is not a target to compile for; give each subgraph its own target"
        )
    if not _is_kind(kind):
        kinds = [str(name) for name in Target.list_kinds()]
        raise TargetError(f"target kind {kind!r} is unknown" + nearest(kind, kinds))
    return kind


@lru_cache(maxsize=32)
def _option_types(kind: str) -> dict[str, str]:
    """Attribute name -> type as TVM spells it: int, bool, str, Array<str>, target.Target."""
    types = TargetKind.options_from_name(kind)
    return {str(name): str(spelled) for name, spelled in types.items() if name not in _FIELDS}


def _current_name(name: str, kind: str, types: Mapping[str, str], dropped: list[str]) -> str | None:
    """Today's name of an attribute; None if there is none any more."""
    if name in types:
        return name
    if name in _RENAMED_ATTRIBUTES and _RENAMED_ATTRIBUTES[name] in types:
        dropped.append(f"-{name} is read as -{_RENAMED_ATTRIBUTES[name]}")
        return _RENAMED_ATTRIBUTES[name]
    if name in _GONE_ATTRIBUTES:
        dropped.append(f"-{name} is dropped, TVM 0.27 has no such target attribute")
        return None
    if name.startswith(_COMPUTED):
        return None
    raise TargetError(
        f"target kind {kind!r} has no attribute -{name}" + nearest(name, types.keys() - _INTERNAL)
    )


def _set_once(config: dict[str, Any], name: str, value: Any, given: Mapping[str, Any]) -> None:
    """Set an attribute; an old and a new name for it together are an error."""
    old = [old for old, new in _RENAMED_ATTRIBUTES.items() if new == name and old in given]
    if old and name in given:
        raise TargetError(f"-{old[0]} is the old name of -{name}; give one of them")
    config[name] = value


def _converted(kind: str, name: str, spelled: str, value: str) -> Any:
    """A command line's value as the attribute's type."""
    if spelled == "Array<str>":
        return text.elements(value)
    plain = text.unquote(value)
    if spelled == "int" and re.fullmatch(r"[+-]?[0-9]{1,19}", plain):
        return _typed(kind, name, spelled, int(plain))
    if spelled == "bool" and plain.lower() in _BOOLEANS:
        return _BOOLEANS[plain.lower()]
    return _typed(kind, name, spelled, plain)


def _typed(kind: str, name: str, spelled: str, value: Any) -> Any:
    """Value if it is of the attribute's type."""
    value = _plain(value)
    if spelled == "int":
        right = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63
    elif spelled == "bool":
        right = isinstance(value, int) and value in (0, 1)
    elif spelled == "str":
        right = isinstance(value, str)
    elif spelled == "Array<str>":
        right = isinstance(value, list) and all(isinstance(element, str) for element in value)
    else:
        right = True  # a host, which is checked separately as a target
    if not right:
        what = {
            "int": "a number that is not negative",
            "bool": "1 or 0",
            "str": "a string",
            "Array<str>": "a list of strings",
        }[spelled]
        raise TargetError(f"attribute -{name} of target kind {kind!r} is {what}, not {value!r}")
    return bool(value) if spelled == "bool" else value


def _check_values(config: dict[str, Any]) -> None:
    """Reject invalid attribute values; fill in those that refer to this machine."""
    kind = config["kind"]
    for name, choices in _CHOICES.items():
        if name in config and config[name] not in choices:
            raise TargetError(f"-{name}={config[name]} is none of {', '.join(map(str, choices))}")
    if config.get("num-cores") == 0:
        raise TargetError("-num-cores=0 leaves no core; leave it out to use what is there")
    if kind == "llvm":
        _check_llvm(config)
    elif kind in _LLVM_TRIPLES and "mcpu" in config:
        config["mcpu"] = cpu.known_cpu(config["mcpu"], _LLVM_TRIPLES[kind])
    elif kind in _ARCHITECTURE_ATTRIBUTE:
        _check_cuda(config, _ARCHITECTURE_ATTRIBUTE[kind])


def _check_llvm(config: dict[str, Any]) -> None:
    if "mcpu" not in config:
        if "mtriple" in config:
            config["mcpu"] = "generic"
        else:
            config["mcpu"], hidden = cpu.host_cpu()
            if hidden:
                config["mattr"] = hidden + config.get("mattr", [])
    triple = config.get("mtriple", cpu.system_triple())
    config["mcpu"] = cpu.known_cpu(config["mcpu"], triple)
    cpu.check_features(triple, config["mcpu"], config.get("mattr", []))
    for option in config.get("cl-opt", []):
        if not option.startswith("-"):
            raise TargetError(f"-cl-opt element {option!r} is not an LLVM option: it has no dash")


def _check_cuda(config: dict[str, Any], attribute: str) -> None:
    if attribute not in config:
        device, lacking = tvm.cuda(0), cuda_runtime.missing()
        if lacking is not None or not device.exist:
            raise TargetError(
                f"target {config['kind']!r} names no architecture and TVM sees no GPU here to "
                f"take it from{f' ({lacking})' if lacking else ''}; add for example "
                f"-{attribute}=sm_90"
            )
        config[attribute] = "sm_" + str(device.compute_version).replace(".", "")
        if config["kind"] == "cuda":
            from . import cuda_driver

            if config[attribute] == "sm_90":
                config[attribute] = "sm_90a"  # with wgmma; such code is for this GPU alone
            for name, value in cuda_driver.unlike_table(config[attribute]).items():
                config.setdefault(name, value)
    if not _CUDA_ARCHITECTURE.fullmatch(config[attribute]):
        raise TargetError(
            f"-{attribute}={config[attribute]} is not a CUDA architecture; "
            f"write for example -{attribute}=sm_90"
        )


def _read_json(text: str) -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        for name in names:
            if names.count(name) > 1:
                raise TargetError(f"{name!r} is given twice in target {text!r}")
        return dict(pairs)

    try:
        config = json.loads(text, object_pairs_hook=once)
    except (json.JSONDecodeError, RecursionError) as error:
        raise TargetError(f"target {text!r} begins like JSON and is none: {error}") from error
    return dict(config)


def _plain(value: Any) -> Any:
    """A TVM container as Python's; other values as they are."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (list, tuple, tvm.ir.Array)):
        return [_plain(element) for element in value]
    if isinstance(value, tvm.ir.Map):
        return {str(name): _plain(element) for name, element in value.items()}
    return value


def to_cli(target: Target) -> str:
    """The target as TVM 0.18 printed it: kind, keys, then the attributes by name; no host.

    `parse` of it gives the same target, up to a host that is not this machine's CPU.
    """
    config = config_of_object(target)
    kind = config.pop("kind")
    config.pop("host", None)
    keys = config.pop("keys", [])
    options = [("keys", keys), *((name, _written(config[name])) for name in sorted(config))]
    return text.write(kind, options)


def _written(value: Any) -> str | list[str]:
    if isinstance(value, bool):
        return str(int(value))
    return value if isinstance(value, list) else str(value)


def shown(target: TargetLike) -> str:
    return repr(to_cli(target) if isinstance(target, Target) else target)
