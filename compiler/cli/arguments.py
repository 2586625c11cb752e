"""Words of the command line -> values; anything malformed is a usage error, exit code 2."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Sequence
from pathlib import Path

import typer

from compiler.precision import INT8, PRECISIONS

from .completions import CALIBRATIONS


def shapes(texts: Sequence[str]) -> dict[str, tuple[int | str | None, ...]]:
    """["data=1,3,224,224", "ids=batch,?"] -> {"data": (1, 3, 224, 224), "ids": ("batch", None)}."""
    found = {}
    extent = r"(\d+|\?|[A-Za-z_]\w*)"
    for name, text in _pairs(texts, "--shape", "input=1,3,224,224").items():
        if re.fullmatch(r"\d+(x\d+)*", text):
            text = text.replace("x", ",")
        if not re.fullmatch(rf"{extent}(,{extent})*|", text):
            raise _bad(
                "--shape",
                f"{text!r} is not a shape; write {name}=1,3,224,224, with a name or ? for a "
                "dimension that is only known at run time",
            )
        found[name] = tuple(map(_extent, text.split(","))) if text else ()
    return found


def _extent(text: str) -> int | str | None:
    return int(text) if text.isdigit() else None if text == "?" else text


def extents(texts: Sequence[str], option: str) -> dict[str, int]:
    """["seq=512"] -> {"seq": 512}."""
    found = {}
    for name, text in _pairs(texts, option, "seq=512").items():
        if not text.isdecimal():
            raise _bad(option, f"{text!r} is not a number of elements; write {name}=512")
        found[name] = int(text)
    return found


def import_limits(texts: Sequence[str]) -> dict[str, float]:
    """["nodes=500000"] -> {"nodes": 500000}."""
    found: dict[str, float] = {}
    for name, text in _pairs(texts, "--import-limit", "nodes=500000").items():
        if name not in ("nodes", "folded_bytes", "seconds"):
            raise _bad("--import-limit", f"{name!r} is not nodes, folded_bytes or seconds")
        pattern = r"\d+(\.\d+)?" if name == "seconds" else r"\d+"
        if not re.fullmatch(pattern, text, re.ASCII):
            raise _bad("--import-limit", f"{text!r} is not a limit of {name}")
        found[name] = float(text) if name == "seconds" else int(text)
    return found


def sizes(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """["seq=1,128"] -> {"seq": (1, 128)}."""
    found = {}
    for name, text in _pairs(texts, "--specialize", "seq=1,128").items():
        if not re.fullmatch(r"\d+(,\d+)*", text):
            raise _bad("--specialize", f"{text!r} is not a list of sizes; write {name}=1,128")
        found[name] = tuple(map(int, text.split(",")))
    return found


def options(texts: Sequence[str]) -> dict[str, str]:
    """["threshold=3"] -> {"threshold": "3"}."""
    return _pairs(texts, "--option", "key=value")


def input_files(texts: Sequence[str]) -> dict[str, Path]:
    """["data=image.npy"] -> {"data": Path("image.npy")}."""
    return {name: Path(text) for name, text in _pairs(texts, "--input", "data=image.npy").items()}


def cpus(text: str | None) -> tuple[int, ...]:
    """ "0,2-3" -> (0, 2, 3)."""
    if not text:
        return ()
    chosen: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        if match is None:
            raise _bad("--pin", f"{text!r} is not a list of CPUs such as 0,2-3")
        first = int(match.group(1))
        chosen += range(first, int(match.group(2) or first) + 1)
    absent = set(chosen) - os.sched_getaffinity(0)
    if absent:
        raise _bad("--pin", f"this process may not run on CPU {min(absent)}")
    return tuple(dict.fromkeys(chosen))


def tracker(text: str | None) -> tuple[str, int, str] | None:
    """ "board:9190/pi4" -> ("board", 9190, "pi4")."""
    if text is None:
        return None
    match = re.fullmatch(r"([^:/]+):(\d+)/(.+)", text)
    if match is None:
        raise _bad("--tracker", f"{text!r} is not a tracker such as 127.0.0.1:9190/key")
    return match[1], int(match[2]), match[3]


def precision(text: str) -> str:
    """ "bf16" -> "bf16", if there is such a precision."""
    return _one_of((*PRECISIONS, INT8), text, "--precision")


def precisions(text: str) -> str:
    """ "default,bf16", if all are precisions that need no samples."""
    for name in names(text):
        _one_of((*PRECISIONS,), name, "--precision")
    return text


def calibration(text: str) -> str:
    """ "kl" -> "kl", if there is such a calibration."""
    return _one_of(CALIBRATIONS, text, "--calibration")


def placement(text: str) -> str:
    """ "fastest", or nothing."""
    return _one_of(("fastest",), text, "--placement") if text else text


def _one_of(known: Sequence[str], text: str, option: str) -> str:
    if text in known:
        return text
    near = difflib.get_close_matches(text, known, n=1)
    like = f"; did you mean {near[0]!r}?" if near else ""
    raise _bad(option, f"{text!r} is not one of {', '.join(known)}{like}")


def _bad(option: str, problem: str) -> typer.BadParameter:
    return typer.BadParameter(problem, param_hint=option)


def names(*texts: str) -> tuple[str, ...]:
    """ "onnxruntime, relax" -> ("onnxruntime", "relax")."""
    parts = (part.strip() for text in texts for part in text.split(","))
    return tuple(dict.fromkeys(part for part in parts if part))


def _pairs(texts: Sequence[str], option: str, example: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.rpartition("=") if option == "--shape" else text.partition("=")
        if not equals or not name:
            raise _bad(option, f"{text!r} has no name and value; write {example}")
        if name in found:
            raise _bad(option, f"{name!r} is given twice")
        found[name] = value
    return found
