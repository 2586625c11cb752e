"""PTX's types as arrays of numpy: what a register's bits mean, and back.

Half and bfloat16 are computed in float32, or in float64 where an instruction rounds once only
(fma), and rounded on the way back. Denormals are never flushed.
"""

from __future__ import annotations

import numpy as np

from tests.ptx.program import BYTES

_NATIVE = {"f32": np.float32, "f64": np.float64, "tf32": np.float32}
PAIRS = {"f16x2": "f16", "bf16x2": "bf16"}


def dtype(kind: str) -> np.dtype:
    """How elements of a type lie in memory."""
    if kind in _NATIVE:
        return np.dtype(_NATIVE[kind])
    letter = "i" if kind.startswith("s") else "u"
    return np.dtype(f"{letter}{BYTES[kind]}")


def decode(bits: np.ndarray, kind: str) -> np.ndarray:
    """Values of a type from unsigned integers at least as wide; of pairs, (threads, 2)."""
    if kind == "pred":
        return bits
    if kind in PAIRS:
        return decode(
            np.ascontiguousarray(bits.astype(np.uint32)).view(np.uint16).reshape(-1, 2), PAIRS[kind]
        )
    width = BYTES[kind]
    bits = np.ascontiguousarray(bits)
    if bits.dtype.itemsize != width:
        bits = bits.astype(f"u{width}")
    if kind == "f16":
        return bits.view(np.float16).astype(np.float32)
    if kind == "bf16":
        return (bits.astype(np.uint32) << 16).view(np.float32)
    if kind == "tf32":
        return (bits & np.uint32(0xFFFFE000)).view(np.float32)
    return bits.view(dtype(kind))


def encode(values: np.ndarray, kind: str) -> np.ndarray:
    """Values of a type, rounded to it, as unsigned integers of its width."""
    if kind == "pred":
        return values.astype(bool)
    if kind in PAIRS:
        return encode(values, PAIRS[kind]).astype(np.uint16).view(np.uint32).reshape(-1)
    if kind == "f16":
        return values.astype(np.float16).view(np.uint16)
    if kind == "bf16":
        return round_bits(values.astype(np.float32).view(np.uint32), 16).astype(np.uint16)
    values = np.asarray(values).astype(dtype(kind), copy=False)
    return np.ascontiguousarray(values).view(f"u{BYTES[kind]}")


def round_bits(bits: np.ndarray, dropped: int) -> np.ndarray:
    """Bits of float32 without the last `dropped`, rounded to nearest even; a NaN stays one."""
    nan = (bits & np.uint32(0x7FFFFFFF)) > 0x7F800000
    half = np.uint32((1 << (dropped - 1)) - 1)
    rounded = bits + half + ((bits >> np.uint32(dropped)) & np.uint32(1))
    return np.where(nan, np.uint32(0x7FFFFFFF), rounded) >> np.uint32(dropped)


def toward(exact: np.ndarray, mode: str, kind: str) -> np.ndarray:
    """float64 values rounded to float32 to the nearest ("rn"), down ("rm"), up, toward zero."""
    if kind != "f32" or mode not in ("rm", "rp", "rz"):
        return exact
    near = exact.astype(np.float32)
    if mode == "rz":
        beyond, goal = np.abs(near) > np.abs(exact), np.float32(0)
    elif mode == "rm":
        beyond, goal = near > exact, np.float32(-np.inf)
    else:
        beyond, goal = near < exact, np.float32(np.inf)
    return np.where(beyond, np.nextafter(near, goal), near)


def immediate(text: str) -> tuple[str, int] | None:
    """An immediate's bits, with "f32", "f64" or "s64" as what it is written as."""
    if text == "WARP_SZ":
        return "s64", 32
    if text[:2] in ("0f", "0F"):
        return "f32", int(text[2:], 16)
    if text[:2] in ("0d", "0D"):
        return "f64", int(text[2:], 16)
    try:
        return "s64", int(text.rstrip("U"), 0)
    except ValueError:
        return None
