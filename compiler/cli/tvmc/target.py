"""Targets as `tvmc` writes them: `"dnnl, llvm -mcpu=skylake"` partitions for dnnl first."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tvm

from compiler import target as targets

from . import TVMCException
from .composite_target import GONE, get_codegen_by_target, get_codegen_names

Options = Mapping[str, Mapping[str, Any]]

# A comma belongs to an option's value if no space follows.
_TOKEN = re.compile(r"""-{1,2}[\w-]+(?:=(?:'[^']*'|"[^"]*"|[^\s,]+(?:,[^\s,]+)*))?|[^\s,]+|,""")


def tokenize_target(target: str) -> list[str]:
    """Names, options and the commas between targets."""
    return _TOKEN.findall(target)


def parse_target(target: str) -> list[dict[str, Any]]:
    """The targets of a text.

    Returns, for each, `name`, `opts` (values without quotes, "" for a flag), `raw` text and whether
    it `is_tvm_target`.
    """
    found: list[list[str]] = [[]]
    for token in tokenize_target(target):
        if token == ",":
            found.append([])
        else:
            found[-1].append(token)
    return [_entry(tokens) for tokens in found if tokens]


def _entry(tokens: Sequence[str]) -> dict[str, Any]:
    pairs = (token.lstrip("-").partition("=") for token in tokens[1:])
    return {
        "name": tokens[0],
        "opts": {key: value.strip("'\"") for key, _, value in pairs},
        "raw": " ".join(tokens),
        "is_tvm_target": tokens[0] in tvm.target.Target.list_kinds(),
    }


def target_from_cli(
    target: str, additional_target_options: Options | None = None, host: str | None = None
) -> tuple[tvm.target.Target, list[dict[str, Any]]]:
    """The target that compiles what no external compiler takes, and those compilers.

    `target`: external compilers, one target of TVM and maybe its host, with commas; or one as JSON.
    `host`: of the target, where the text names none. Returns the target, and entries of
    `parse_target`.
    Raises TVMCException: a target is unknown, named twice or one too many, or options are for one
    that is not there.
    """
    if target.lstrip().startswith("{"):
        return targets.parse(json.loads(target), host), []
    entries = parse_target(target)
    names = [entry["name"] for entry in entries]
    options = additional_target_options or {}
    for name in names:
        if names.count(name) > 1:
            raise TVMCException(f"target {name!r} is given twice")
    for name, given in options.items():
        if name not in names:
            flag = f"--target-{name}-{next(iter(given), '')}"
            raise TVMCException(f"Passed {flag} but did not specify {name} target")
    own = [entry for entry in entries if entry["is_tvm_target"] or "/" in entry["name"]]
    extra = [entry for entry in entries if entry not in own]
    for entry in extra:
        if entry["name"] not in (*GONE, *get_codegen_names()):
            get_codegen_by_target(entry["name"])
        entry["opts"] |= options.get(entry["name"], {})
    if not 1 <= len(own) <= 2:
        raise TVMCException(f"target {target!r}: give one target of TVM, and its host if need be")
    texts = []
    for entry in own:
        more = [f"-{key}={value}" for key, value in options.get(entry["name"], {}).items()]
        texts.append(" ".join([entry["raw"], *more]))
    return targets.parse(texts[0], texts[1] if len(texts) > 1 else host), extra


# Old options of targets, which `targets.parse` understands and a target of today does not list.
_MORE_OPTIONS = {
    "opencl": ("max_function_args",),
    "c": ("mcpu", "march", "workspace-byte-alignment"),
}
_NO_OPTIONS = ("kind", "tag", "host", "from_device", "target_device_type")


def _options_by_kind() -> Iterator[tuple[str, str]]:
    """(kind of target, option) of all that may be given as a flag."""
    for kind in (*tvm.target.Target.list_kinds(), *get_codegen_names()):
        listed: Sequence[str] = ()
        if kind in tvm.target.Target.list_kinds():
            listed = list(tvm.target.TargetKind.options_from_name(kind))
        for option in dict.fromkeys([*listed, *_MORE_OPTIONS.get(kind, ())]):
            if option not in _NO_OPTIONS:
                yield kind, str(option)


def generate_target_args(parser: argparse.ArgumentParser, required: bool = False) -> None:
    """Add `--target`, and one flag per target option, such as `--target-llvm-mcpu`."""
    parser.add_argument("--target", required=required, help='for example "llvm -mcpu=skylake".')
    for kind, option in _options_by_kind():
        parser.add_argument(f"--target-{kind}-{option}", help=argparse.SUPPRESS)


def reconstruct_target_args(args: argparse.Namespace) -> dict[str, dict[str, str]]:
    """Options by kind of target, of flags that were given."""
    found: dict[str, dict[str, str]] = {}
    for kind, option in _options_by_kind():
        value = getattr(args, f"target_{kind}_{option}".replace("-", "_"), None)
        if value is not None:
            found.setdefault(kind, {})[option] = value
    return found


def partition(
    mod: tvm.IRModule, params: Mapping[str, Any], compilers: Sequence[Mapping[str, Any]]
) -> tvm.IRModule:
    """Hand each external compiler what its patterns find."""
    for entry in compilers:
        pipeline = get_codegen_by_target(entry["name"])["pass_pipeline"]
        mod = pipeline(mod, params, **entry["opts"])
    return mod
