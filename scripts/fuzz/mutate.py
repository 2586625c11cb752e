"""Damages files: as bytes, as text, and as the values, lines and fields that they are made of."""

from __future__ import annotations

import json
import random
import string
from collections.abc import Callable, Sequence
from typing import Any

Damage = Callable[[bytes, random.Random], bytes]
"""Makes a damaged file of a good one, the same for the same state of the generator."""

VALUES: tuple[Any, ...] = (
    *(None, -1, 0, 1, 2**31, 2**63, 2**70, 10**400, 1.5, -0.0, float("inf"), float("nan"), True),
    *("", "null", "[]", "0", "\ud800", "\0", [], {}, [[0, 0, 0]]),
)
"""What few readers expect where another value stood."""

_LETTERS = string.ascii_lowercase + string.digits + "_ %"


def change_bytes(data: bytes, rng: random.Random) -> bytes:
    """Overwrite, delete, insert, cut off or copy a few bytes."""
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 5])):
        if not changed:
            break
        # Headers and tables of contents are at the ends of files.
        near = rng.choice([len(changed), len(changed), min(len(changed), 100)])
        at, kind = rng.randrange(near), rng.randrange(6)
        if kind == 0:
            changed[at] = rng.randrange(256)
        elif kind == 1:
            del changed[at : at + rng.randrange(1, 20)]
        elif kind == 2:
            changed[at:at] = rng.randbytes(rng.randrange(1, 9))
        elif kind == 3 and rng.random() < 0.5:
            del changed[at:]
        elif kind == 4:
            changed[at] ^= 1 << rng.randrange(8)
        else:
            source = rng.randrange(len(changed))
            changed[at : at + 8] = changed[source : source + 8]
    return bytes(changed)


def change_text(*pieces: str) -> Damage:
    """Cut, double, swap or replace parts of a text, also by one of the pieces."""

    def damage(data: bytes, rng: random.Random) -> bytes:
        text = data.decode()
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
        return text.encode("utf-8", "surrogatepass")

    return damage


def change_json(data: bytes, rng: random.Random) -> bytes:
    """Replace, remove, repeat or move one or two values of a JSON text, in its own spelling."""
    value = json.loads(data)
    compact = b'", "' not in data and b'": ' not in data
    for _ in range(rng.choice([1, 1, 2])):
        value = change_value(value, rng)
    return json.dumps(value, separators=(",", ":") if compact else None).encode()


def change_value(value: Any, rng: random.Random) -> Any:
    """Change one value somewhere in a value of JSON."""
    if isinstance(value, (list, dict)) and value and rng.random() < 0.93:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key, roll = rng.choice(keys), rng.random()
        changed = value.copy()
        if roll < 0.04:
            del changed[key]
        elif roll < 0.07 and isinstance(changed, list):
            changed.insert(key, changed[key])
        elif roll < 0.11:
            other = rng.choice(keys)
            changed[key], changed[other] = changed[other], changed[key]
        else:
            changed[key] = change_value(changed[key], rng)
        return changed
    roll = rng.random()
    if isinstance(value, int) and roll < 0.6:
        return value + rng.choice([-1, 1, 7, -value, value, 1 << rng.randrange(40)])
    if isinstance(value, str) and roll < 0.6:
        if value[:1] in ("[", "{") and roll < 0.5:
            try:  # JSON in a string, as workload keys and the attributes of nodes are
                return json.dumps(change_value(json.loads(value), rng))
            except ValueError:
                pass
        at = rng.randrange(len(value) + 1)
        return value[:at] + rng.choice(_LETTERS) * rng.randrange(2) + value[at + 1 :]
    return rng.choice(VALUES)


def change_line(*damages: Damage) -> Damage:
    """Damage one line, now and then repeat or swap lines."""

    def damage(data: bytes, rng: random.Random) -> bytes:
        lines = data.splitlines(keepends=True)
        at, roll = rng.randrange(len(lines)), rng.random()
        if roll < 0.05:
            lines.insert(at, rng.choice(lines))
        elif roll < 0.1:
            lines[at] = lines[at].rstrip(b"\n") + rng.choice([b"", b"\r", b"\r\n", b"\xe2\x80\xa8"])
        elif lines[at].strip():
            lines[at] = rng.choice(damages)(lines[at].strip(), rng) + b"\n"
        return b"".join(lines)

    return damage


_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


def change_fields(data: bytes, rng: random.Random) -> bytes:
    """Change one field of a protocol buffer, at any depth; the lengths around it stay right."""
    fields = _fields(data)
    if not fields:
        return change_bytes(data, rng)
    at, roll = rng.randrange(len(fields)), rng.random()
    tag, content = fields[at]
    if roll < 0.05:
        del fields[at]
    elif roll < 0.1:
        fields.insert(rng.randrange(len(fields)), fields[at])
    elif tag & 7 == _LENGTH:
        inner = change_fields if rng.random() < 0.9 else change_bytes
        fields[at] = tag, inner(content, rng)
    elif tag & 7 == _VARINT:
        number = int.from_bytes(content, "little") + rng.choice([-1, 1, 2**31, 2**63, 7])
        fields[at] = tag, (number % 2**64).to_bytes(8, "little")
    else:
        fields[at] = tag, rng.randbytes(len(content))
    return b"".join(_field(*each) for each in fields)


def _fields(data: bytes) -> list[tuple[int, bytes]]:
    """Tag and content of each field, integers as eight bytes; none if it is not a message."""
    found, offset = [], 0
    while offset < len(data):
        tag, offset = _varint(data, offset)
        wire = tag & 7
        if wire == _VARINT:
            number, offset = _varint(data, offset)
            found.append((tag, (number % 2**64).to_bytes(8, "little")))
            continue
        if wire not in (_FIXED64, _LENGTH, _FIXED32) or not tag >> 3:
            return []
        size = 8 if wire == _FIXED64 else 4
        if wire == _LENGTH:
            size, offset = _varint(data, offset)
        if offset + size > len(data):
            return []
        found.append((tag, data[offset : offset + size]))
        offset += size
    return found


def _varint(data: bytes, offset: int) -> tuple[int, int]:
    value = shift = 0
    while offset < len(data):
        byte = data[offset]
        value |= (byte & 0x7F) << shift
        shift, offset = shift + 7, offset + 1
        if byte < 0x80:
            return value, offset
    return value, len(data) + 1


def _field(tag: int, content: bytes) -> bytes:
    if tag & 7 == _VARINT:
        return _as_varint(tag) + _as_varint(int.from_bytes(content, "little"))
    length = _as_varint(len(content)) if tag & 7 == _LENGTH else b""
    return _as_varint(tag) + length + content


def _as_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def any_of(*damages: Damage) -> Damage:
    """One of several ways, drawn for each file."""
    return lambda data, rng: rng.choice(damages)(data, rng)


def chosen(seeds: Sequence[bytes], damage: Damage, seed: int, number: int) -> bytes:
    """The damaged file of a number."""
    rng = random.Random(f"{seed} {number}")
    return damage(rng.choice(seeds), rng)
