#!/usr/bin/env python3
"""Damage Relay texts, saved modules and parameter files; their readers may only raise clean errors.

    python scripts/fuzz_relay_readers.py ORACLE [--count 200000] [--seed 0]

ORACLE is a folder with `load.py`; `tests/compiler/relay/test_fuzz.py` runs a sample.
"""

from __future__ import annotations

import argparse
import importlib.util
import pathlib
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from compiler.errors import BatonError
from compiler.relay.saved.module import read_module
from compiler.relay.saved.params import read_params
from compiler.relay.text.parser import parse_module

PIECES = (
    *("(", ")", "{", "}", "[", "]", ",", ";", "=", "->", "=>", ".", "%", "@", "/*", "*/", "//"),
    *("fn", "let", "if", "else", "match", "def", "type", "meta[relay.Constant][0]", "%0", "%x"),
    *("1f", "-1", "1e999f", "999999999999999999999", "nan", "inff64", '"', "\\", "\x00", "é", "?"),
    *("Tensor[(1), float32]", "Tensor[(", "ref(", "nn.conv2d", "None", "True", "#[metadata]"),
)
JSON_PIECES = (
    "0",
    "-1",
    "99999999",
    "[]",
    "{}",
    "null",
    '""',
    '"0"',
    "1.5",
    "true",
    '"relay.Call"',
)


def mutate(text: str, rng: random.Random, pieces: Sequence[str]) -> str:
    """The text with one to four places changed: cut, doubled, swapped or replaced."""
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(text) + 1)
        end = min(len(text), at + rng.choice((0, 1, 1, 2, 5, 20, 200)))
        kind = rng.randrange(4)
        if kind == 0:
            text = text[:at] + text[end:]
        elif kind == 1:
            text = text[:at] + rng.choice(pieces) + text[end:]
        elif kind == 2:
            text = text[:end] + text[at:end] + text[end:]
        else:
            other = rng.randrange(len(text) + 1)
            text = text[:at] + text[other : other + end - at] + text[end:]
    return text


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    """The bytes with some changed, or cut short."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        if changed:
            changed[rng.randrange(min(len(changed), 400))] = rng.randrange(256)
    return bytes(changed[: rng.randrange(len(changed) + 1)] if rng.random() < 0.3 else changed)


def attempt(kind: str, material: str | bytes, rng: random.Random) -> str:
    """Read one mutation; "read" or the name of the clean error. Anything else is raised."""
    try:
        if kind == "text":
            assert isinstance(material, str)
            parse_module(mutate(material, rng, PIECES))
        elif kind == "json":
            assert isinstance(material, str)
            read_module(mutate(material, rng, JSON_PIECES))
        else:
            assert isinstance(material, bytes)
            read_params(mutate_bytes(material, rng))
    except BatonError as error:
        return type(error).__name__
    return "read"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("oracle", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    spec = importlib.util.spec_from_file_location("oracle_load", options.oracle / "load.py")
    assert spec is not None and spec.loader is not None
    load = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(load)
    material: list[tuple[str, str | bytes]] = [
        ("text", case.text) for case in load.cases() if len(case.text) < 8_000
    ]
    material += [("json", text) for _, text in load.json_modules() if len(text) < 8_000]
    network = next(load.networks())
    material += [("params", pathlib.Path(network["params_path"]).read_bytes())] * 100

    rng = random.Random(options.seed)
    outcomes: Counter[str] = Counter()
    failures = 0
    started = time.time()
    for number in range(options.count):
        kind, original = material[rng.randrange(len(material))]
        state = rng.getstate()
        try:
            outcomes[f"{kind}: {attempt(kind, original, rng)}"] += 1
        except Exception as error:
            failures += 1
            rng.setstate(state)
            print(f"mutation {number} ({kind}): {type(error).__name__}: {error}"[:300])
            rng.random()
    for outcome, count in sorted(outcomes.items()):
        print(f"{count:8} {outcome}")
    print(f"{failures} of {options.count} end in another error; {time.time() - started:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
