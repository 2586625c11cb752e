"""Damaged symbol and parameter files: an error of Baton's, or a symbol that is consistent.

As a program it tries as many damaged files as it is told:
`python -m tests.compiler.symbol.test_damage 100000`. Each slice of them has a seed of its own, so
that a run can be taken up where another one ended.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import random
import sys
import time
from typing import Any

from compiler.errors import BatonError, FrontendError
from compiler.partition import Strategy, list_partitioners, register, unregister
from compiler.symbol import Symbol, load_params

COUNT = 1000
"""Mutations per test; each took about a millisecond when this was written."""

SLICE = 500
"""Files after which the program says how far it is."""


def change_bytes(data: bytes, chance: random.Random) -> bytes:
    """Overwrite, delete, insert, truncate or copy a few bytes."""
    changed = bytearray(data)
    for _ in range(chance.choice([1, 1, 2, 5])):
        if not changed:
            break
        at, kind = chance.randrange(len(changed)), chance.randrange(5)
        if kind == 0:
            changed[at] = chance.randrange(256)
        elif kind == 1:
            del changed[at : at + chance.randrange(1, 20)]
        elif kind == 2:
            changed[at:at] = chance.randbytes(chance.randrange(1, 9))
        elif kind == 3:
            del changed[at:]
        else:
            source = chance.randrange(len(changed))
            changed[at : at + 8] = changed[source : source + 8]
    return bytes(changed)


VALUES: tuple[Any, ...] = (None, -1, 0, 1, 2**70, 1.5, True, "", "null", "[]", [], {}, [[0, 0, 0]])


def change_value(data: Any, chance: random.Random) -> Any:
    """Replace, remove or repeat one value somewhere in a JSON value."""
    if isinstance(data, (list, dict)) and data and chance.random() < 0.93:
        keys = list(data) if isinstance(data, dict) else list(range(len(data)))
        key, roll = chance.choice(keys), chance.random()
        changed = data.copy()
        if roll < 0.04:
            del changed[key]
        elif roll < 0.08 and isinstance(changed, list):
            changed.insert(key, changed[key])
        else:
            changed[key] = change_value(changed[key], chance)
        return changed
    if isinstance(data, int) and chance.random() < 0.5:
        return data + chance.choice([-1, 1, 7])
    return chance.choice(VALUES)


def symbols(folder: pathlib.Path) -> list[Any]:
    """Symbols of models, of partitioned graphs and of control flow."""
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*-symbol.json"))]
    for path in sorted(folder.glob("a*.json")):
        found.append(json.loads(path.read_text())["runs"]["plain"]["partitioned_symbol"])
    return [
        *found,
        json.loads((folder / "c_deferred" / "c18_block_foreach.json").read_text())["symbol"],
    ]


def use_symbol(text: str | bytes) -> bool:
    """Whether a symbol can be read; then everything that does not import it must work."""
    try:
        symbol = Symbol.loads(text)
    except FrontendError as error:
        assert str(error)
        return False
    symbol.list_arguments(), symbol.list_auxiliary_states(), symbol.attr_dict()
    symbol.list_outputs(), symbol.get_internals().list_outputs()
    assert Symbol.loads(symbol.tojson()).tojson() == symbol.tojson()
    return True


def damage_symbols(folder: pathlib.Path, seed: int, count: int) -> int:
    """Read `count` damaged symbols; returns how many could be read."""
    chance, originals = random.Random(seed), symbols(folder)
    texts = [json.dumps(original).encode() for original in originals]
    readable = 0
    for turn in range(count):
        if turn % 3 == 0:
            readable += use_symbol(change_bytes(chance.choice(texts), chance))
        else:
            readable += use_symbol(json.dumps(change_value(chance.choice(originals), chance)))
    return readable


def claim_all(graph_json: str, ids: list[int], options: dict[str, str]) -> None:
    """Claim every node."""
    ids[:] = [-1] * len(ids)


def damage_imports(folder: pathlib.Path, seed: int, count: int) -> int:
    """Import and partition what is readable of `count` damaged symbols; how many of it works."""
    chance, originals = random.Random(seed), symbols(folder)
    register("damaged", Strategy("all", claim_all), replace=True)
    working = 0
    try:
        for _ in range(count):
            text = json.dumps(change_value(chance.choice(originals), chance))
            try:
                symbol = Symbol.loads(text).optimize_for("damaged")
                assert Symbol.loads(symbol.tojson()).tojson() == symbol.tojson()
                symbol.infer_shape(data=(1, 3, 16, 16))
                working += 1
            except BatonError as error:
                assert str(error)
    finally:
        if "damaged" in list_partitioners():
            unregister("damaged")
    return working


def damage_params(folder: pathlib.Path, seed: int, count: int) -> int:
    """Read `count` damaged parameter files; returns how many could be read."""
    chance = random.Random(seed)
    originals = [path.read_bytes() for path in sorted(folder.glob("params_*.params"))]
    readable = 0
    for _ in range(count):
        try:
            load_params(change_bytes(chance.choice(originals), chance))
            readable += 1
        except FrontendError as error:
            assert str(error)
    return readable


def test_a_damaged_symbol_is_refused_or_consistent(oracle):
    assert 0 < damage_symbols(oracle, 1, COUNT) < COUNT


def test_a_damaged_parameter_file_is_refused_or_read(oracle):
    assert 0 < damage_params(oracle, 1, 2 * COUNT) < 2 * COUNT


def test_what_is_left_of_a_damaged_symbol_is_imported_or_refused(oracle):
    assert damage_imports(oracle, 1, COUNT // 5) < COUNT // 5


KINDS = {
    "symbols": (damage_symbols, "symbols could be read"),
    "params": (damage_params, "parameter files could be read"),
    "imports": (damage_imports, "symbols could be imported"),
}


def main() -> None:
    """Try damaged files of every kind; says after each slice how to go on from there."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("count", type=int, nargs="?", default=100_000, help="files in all")
    parser.add_argument("--seconds", type=float, help="for how long, instead of how many files")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--kind", choices=KINDS, help="only this third of them")
    parser.add_argument("--skip", type=int, default=0, help="files of each kind to leave out")
    given = parser.parse_args()
    started = time.monotonic()
    folder = pathlib.Path(__file__).parents[2] / "oracle" / "mxnet"
    kinds = [given.kind] if given.kind else list(KINDS)
    each = sys.maxsize if given.seconds is not None else given.count // 3
    for i, kind in enumerate(kinds):
        damage, text = KINDS[kind]
        end = started + (given.seconds or 0) * (i + 1) / len(kinds)
        for first in range(given.skip, each, SLICE):
            if given.seconds is not None and time.monotonic() >= end:
                break
            count = min(SLICE, each - first)
            found = damage(folder, given.seed + first, count)
            print(
                f"{kind} from {first}: {found} of {count} damaged {text} "
                f"(--seed {given.seed} --kind {kind} --skip {first + count} goes on)",
                flush=True,
            )


if __name__ == "__main__":
    main()
