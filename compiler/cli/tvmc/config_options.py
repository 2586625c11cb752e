"""`tvmc --config FILE`: flags in a JSON file.

{"targets": [{"kind": "llvm", "mcpu": "skylake"}], "output": "model.tar",
 "executor": {"kind": "graph", "link-params": "1"},
 "pass-config": {"tir.disable_vectorize": "1"}}
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from compiler.support.regular_files import read_regular

from . import TVMCException

_WITH_KINDS = ("executor", "runtime")

CONFIGS_JSON_DIR: str | None = None
"""The folder of files that are named without one, once the environment was asked."""


def get_configs_json_dir() -> str | None:
    """The folder of the environment variable TVM_CONFIGS_JSON_DIR, if it is one."""
    global CONFIGS_JSON_DIR
    if CONFIGS_JSON_DIR is None:
        folder = os.environ.get("TVM_CONFIGS_JSON_DIR", "")
        CONFIGS_JSON_DIR = folder if os.path.isdir(folder) else None
    return CONFIGS_JSON_DIR


def read_config(name: str) -> dict[str, Any]:
    """The flags of a file; of a name alone, of that file in `get_configs_json_dir`.

    Raises TVMCException: it can't be read, or is not an object.
    """
    path, folder = Path(name), get_configs_json_dir()
    if not path.is_file() and folder is not None:
        path = Path(folder) / (name if name.endswith(".json") else f"{name}.json")
    try:
        flags = json.loads(read_regular(path))
    except (OSError, ValueError) as error:
        raise TVMCException(f"--config {name}: not a file of flags: {error}") from error
    if not isinstance(flags, dict):
        raise TVMCException(f"--config {name}: not an object of flags")
    return flags


def convert_config_json_to_cli(json_params: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Flags, in the order of the file, each as {name with underscores: value}.

    Target options come before the targets, executor options after the executor.
    """
    return list(_flags(json_params))


def _flags(json_params: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for name, value in json_params.items():
        if name in ("targets", "target") and isinstance(value, list):
            for each in value:
                for option, setting in each.items():
                    if option != "kind":
                        yield {f"target_{each['kind']}_{option}": setting}
            yield {"target": ", ".join(str(each["kind"]) for each in value)}
        elif name in _WITH_KINDS and isinstance(value, dict):
            yield {name: value["kind"]}
            for option, setting in value.items():
                if option != "kind":
                    yield {f"{name}_{value['kind']}_{option}".replace("-", "_"): setting}
        elif name == "pass-config" and isinstance(value, dict):
            yield {"pass_config": [f"{key}={setting}" for key, setting in value.items()]}
        else:
            yield {name.replace("-", "_"): value}


def words_of(json_params: Mapping[str, Any]) -> Iterator[str]:
    """Convert a JSON config to command-line words.

    Raises TVMCException: a target, executor or runtime has no kind.
    """
    try:
        flags = convert_config_json_to_cli(json_params)
    except (KeyError, AttributeError, TypeError) as error:
        raise TVMCException(
            f"--config: a target, executor or runtime needs a kind: {error}"
        ) from error
    for flag in flags:
        ((name, value),) = flag.items()
        if name.startswith("target_") and name != "target_host":
            _, kind, option = name.split("_", 2)
            yield f"--target-{kind}-{option}={value}"
            continue
        word = f"--{name.replace('_', '-')}"
        if str(value) == "True":
            yield word
        elif str(value) != "False":
            for each in value if isinstance(value, list) else [value]:
                yield from (word, str(each))
