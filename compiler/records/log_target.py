"""Keys and model of tuning logs' target strings, which match a record to a build.

Later TVM versions reject attributes of old logs (`-link-params=0`): no `Target` parses them here.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..errors import RecordError, TargetError
from ..target import parse
from ..target import text as target_text
from ..target.config import to_cli
from .untrusted_json import as_record_errors, read_json

UNKNOWN_MODEL = "unknown"

_DEFAULT_KEYS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("llvm", "c", "stackvm"), ("cpu",)),
    **dict.fromkeys(("cuda", "nvptx"), ("cuda", "gpu")),
    **{kind: (kind, "gpu") for kind in ("rocm", "opencl", "vulkan", "metal", "webgpu")},
    **{"hexagon": ("hexagon", "cpu"), "ext_dev": ("ext_dev",)},
}


@dataclass(frozen=True)
class LogTarget:
    """The part of a target that matches records to builds."""

    text: str  # the target as the log spells it
    kind: str  # such as "llvm"
    keys: tuple[str, ...]  # strategy keys, most specific first: ("arm_cpu", "cpu")
    model: str = UNKNOWN_MODEL  # value of `-model`, or "unknown"

    def __str__(self) -> str:
        return self.text


@as_record_errors
def log_target(target: Any) -> LogTarget:
    """Describe a target for record matching; RecordError if empty or of a kind without logs."""
    if isinstance(target, LogTarget):
        return target
    if isinstance(target, str):
        return _parse(target)
    if isinstance(target, Mapping) and "kind" in target:
        return _from_options(json.dumps(dict(target)), str(target["kind"]), dict(target))
    if not hasattr(target, "kind"):
        raise RecordError(f"a {type(target).__name__} is not a target")
    text = str(target)
    found = _of_objects.get(text)
    if found is None:
        if len(_of_objects) >= _MOST_OBJECTS:
            _of_objects.clear()
        found = _of_objects[text] = _from_object(target)
    return found


# A build asks with the same target for each of its operators.
_of_objects: dict[str, LogTarget] = {}
_MOST_OBJECTS = 1 << 10


def _from_object(target: Any) -> LogTarget:
    model = str(target.attrs.get("model", UNKNOWN_MODEL))
    keys = tuple(str(key) for key in target.keys)
    return LogTarget(to_cli(target), str(target.kind.name), keys, model)


@functools.lru_cache(maxsize=1024)
def _parse(text: str) -> LogTarget:
    if text.lstrip().startswith("{"):
        try:
            options = read_json(text)
        except RecordError as error:
            raise RecordError(f"target {text[:200]!r} is not readable as JSON: {error}") from error
        return _from_options(text, str(options.get("kind", "")), options)
    try:
        words = target_text.read(text)
        if "/" in words.name:  # a tag: "nvidia/nvidia-t4"
            return replace(log_target(parse(text)), text=text)
        options = {name: target_text.elements(value) for name, value in words.options.items()}
    except TargetError as error:
        raise RecordError(str(error)) from error
    keys = options.pop("keys", [])
    plain = {name: ",".join(values) for name, values in options.items()}
    return _from_options(text, words.name, {**plain, "keys": keys})


def _from_options(text: str, kind: str, options: Mapping[str, Any]) -> LogTarget:
    if kind not in _DEFAULT_KEYS:
        raise RecordError(
            f"target {text!r}: {kind!r} is not a kind of target that logs are kept for"
        )
    keys = [str(key) for key in options.get("keys", ())]
    triple = str(options.get("mtriple", options.get("target", "")))
    defaults = _DEFAULT_KEYS[kind]
    if kind == "llvm" and triple.startswith(("aarch64", "arm64", "armv7", "armv8")):
        defaults = ("arm_cpu", "cpu")
    device = options.get("device")
    order = [*keys, *([str(device)] if device else []), *(() if keys else defaults)]
    model = str(options.get("model", UNKNOWN_MODEL))
    return LogTarget(text, kind, tuple(dict.fromkeys(order)), model)
