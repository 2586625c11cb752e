"""Instructions that compute a register from registers, each a function of arrays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.ptx.numbers import PAIRS, round_bits, toward
from tests.ptx.program import BYTES, PtxError

Values = np.ndarray
Function = Callable[..., Values]
FLOATS = {"f16", "bf16", "f32", "f64", "tf32", "f16x2", "bf16x2"}
_ROUNDING = ("rn", "rm", "rp", "rz", "rni", "rmi", "rpi", "rzi", "rna")
_COMPARE: dict[str, Function] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
}


def plan(opcode: tuple[str, ...]) -> tuple[str, list[str], Function] | None:
    """Type of the result, types of the operands, and the function; None for other instructions.

    Raises
    ------
    PtxError
        A form of the instruction that is not known here.
    """
    base, kind, mods = opcode[0], opcode[-1], set(opcode[1:-1])
    is_float = kind in FLOATS
    if base == "cvt":
        return _convert(opcode)
    if base == "setp":
        return None
    if base == "set":
        return _set(opcode)
    if base in _UNARY_FLOAT and is_float:
        return kind, [kind], _UNARY_FLOAT[base]
    if base in ("min", "max") and is_float:
        return kind, [kind] * 2, _extreme(base, "NaN" in mods)
    if base in ("add", "sub", "mul") and is_float:
        return kind, [kind] * 2, _rounded(_BINARY[base], opcode)
    if base in ("fma", "mad") and is_float:
        return kind, [kind] * 3, _fma(opcode)
    if base == "div" and is_float:
        return kind, [kind] * 2, _rounded(np.divide, opcode)
    if base in ("mul", "mad") and mods & {"lo", "hi", "wide"}:
        return _multiply(base, kind, mods)
    if base in _BINARY:
        return kind, [kind] * 2, _BINARY[base]
    if base in ("shl", "shr"):
        return kind, [kind, "u32"], _shift(base, 8 * BYTES[kind])
    if base in _OTHERS:
        return _OTHERS[base](opcode)
    return None


def _set(opcode: tuple[str, ...]) -> tuple[str, list[str], Function]:
    """A comparison as 1.0 or, of integers, with all bits set."""
    name, kind, operands = opcode[1], opcode[-2], opcode[-1]
    true = 1.0 if kind in FLOATS else -1

    def run(a: Values, b: Values) -> Values:
        found = compare(name, operands, a, b)
        return np.where(found, true, 0)

    return kind, [operands] * 2, run


def saturated(opcode: tuple[str, ...], values: Values) -> Values:
    """What `.sat` (floats) and `.relu` do to a result."""
    if "sat" in opcode and opcode[-1] in FLOATS:
        return np.where(np.isnan(values), 0, np.clip(values, 0, 1)).astype(values.dtype)
    if "relu" in opcode:
        return np.where(np.isnan(values), values, np.maximum(values, 0))
    return values


def compare(name: str, kind: str, a: Values, b: Values) -> Values:
    """A comparison by its name; with a u behind it ("ltu"), true of NaN as well."""
    if name in ("num", "nan"):
        nan = np.isnan(a) | np.isnan(b)
        return nan if name == "nan" else ~nan
    if kind in FLOATS:
        unordered = np.isnan(a) | np.isnan(b)
        if name.endswith("u") and name[:-1] in _COMPARE:
            return _COMPARE[name[:-1]](a, b) | unordered
        return _COMPARE[name](a, b) & ~unordered
    return _COMPARE[name](a, b)


def integer_divide(a: Values, b: Values) -> Values:
    """Toward zero, as C has it; anything for a divisor of zero."""
    b = np.where(b == 0, 1, b)
    quotient = a // b
    return quotient + ((a % b != 0) & ((a < 0) != (b < 0))).astype(a.dtype)


def _remainder(a: Values, b: Values) -> Values:
    return a - integer_divide(a, b) * b


def _divide(a: Values, b: Values) -> Values:
    return np.divide(a, b) if a.dtype.kind == "f" else integer_divide(a, b)


_BINARY: dict[str, Function] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _divide,
    "rem": _remainder,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
_UNARY_FLOAT: dict[str, Function] = {
    "ex2": np.exp2,
    "lg2": np.log2,
    "sqrt": np.sqrt,
    "rsqrt": lambda a: (1 / np.sqrt(a.astype(np.float64))).astype(a.dtype),
    "rcp": lambda a: (1 / a.astype(np.float64)).astype(a.dtype),
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "neg": np.negative,
    "abs": np.abs,
}


def _rounded(function: Function, opcode: tuple[str, ...]) -> Function:
    mode, kind = next((m for m in opcode if m in _ROUNDING), "rn"), opcode[-1]
    if mode == "rn" or kind != "f32":
        return function
    return lambda *values: toward(
        function(*(value.astype(np.float64) for value in values)), mode, kind
    )


def _fma(opcode: tuple[str, ...]) -> Function:
    mode, kind = next((m for m in opcode if m in _ROUNDING), "rn"), opcode[-1]

    def fma(a: Values, b: Values, c: Values) -> Values:
        if kind == "f64":
            return a * b + c
        exact = np.multiply(a, b, dtype=np.float64)
        exact += c
        return saturated(opcode, toward(exact, mode, kind))

    return fma


def _extreme(base: str, propagate: bool) -> Function:
    if propagate:
        return np.minimum if base == "min" else np.maximum
    return np.fmin if base == "min" else np.fmax


def _multiply(base: str, kind: str, mods: set[str]) -> tuple[str, list[str], Function]:
    bits = 8 * BYTES[kind]
    wide = f"{kind[0]}{2 * bits}"
    if "lo" in mods:
        result, product = kind, np.multiply
    elif bits == 64:
        result, product = kind, _high64
    elif "wide" in mods:
        result, product = wide, _wide(wide)
    else:
        result = kind

        def product(a: Values, b: Values) -> Values:  # type: ignore[misc]
            return (_wide(wide)(a, b) >> bits).astype(a.dtype)

    if base == "mul":
        return result, [kind] * 2, product
    return result, [kind, kind, result], lambda a, b, c: product(a, b) + c


def _wide(kind: str) -> Function:
    letter = "i" if kind[0] == "s" else "u"
    dtype = np.dtype(f"{letter}{BYTES[kind]}")
    return lambda a, b: np.multiply(a.astype(dtype), b.astype(dtype))


def _high64(a: Values, b: Values) -> Values:
    products = a.astype(object) * b.astype(object)
    return (products >> 64).astype(a.dtype)


def _shift(base: str, bits: int) -> Function:
    def shift(a: Values, by: Values) -> Values:
        beyond = by >= bits
        by = np.minimum(by, bits - 1).astype(a.dtype)
        if base == "shl":
            return np.where(beyond, 0, a << by)
        kept = a >> by  # of signed integers, copies of the sign
        return kept if a.dtype.kind == "i" else np.where(beyond, 0, kept)

    return shift


def _convert(opcode: tuple[str, ...]) -> tuple[str, list[str], Function]:
    to, source = opcode[-2], opcode[-1]
    mode = next((m for m in opcode[1:-2] if m in _ROUNDING), "")
    if to in PAIRS:  # the first operand is the upper half
        return to, [source] * 2, lambda high, low: saturated(opcode[:-1], np.stack([low, high], 1))
    if to == "tf32":
        keep = np.uint32(0xFFFFE000)
        if mode == "rna":  # to nearest, ties away from zero
            return "b32", ["b32"], lambda bits: (bits + np.uint32(0x1000)) & keep
        return "b32", ["b32"], lambda bits: round_bits(bits, 13) << np.uint32(13)
    if to in FLOATS:
        return to, [source], lambda a: _to_float(a, to, mode, opcode)
    return to, [source], lambda a: _to_integer(a, to, mode, "sat" in opcode)


def _integral(a: Values, mode: str) -> Values:
    functions = {"rni": np.rint, "rmi": np.floor, "rpi": np.ceil, "rzi": np.trunc}
    return functions[mode](a)


def _to_float(a: Values, to: str, mode: str, opcode: tuple[str, ...]) -> Values:
    if mode.endswith("i"):
        a = _integral(a, mode)
    elif mode in ("rm", "rp", "rz"):
        a = toward(a.astype(np.float64), mode, to)
    elif a.dtype.kind in "iu":
        a = a.astype(np.float64 if to == "f64" else np.float32)
    return saturated((*opcode[:-2], to), a)


def _to_integer(a: Values, to: str, mode: str, saturate: bool) -> Values:
    letter = "i" if to[0] == "s" else "u"
    limits = np.iinfo(np.dtype(f"{letter}{BYTES[to]}"))
    if a.dtype.kind == "f":
        whole = _integral(a.astype(np.float64), mode or "rzi")
        whole = np.where(np.isnan(whole), 0, whole)
        # Beyond 2**53 the limit itself has no float64: what reaches it is set apart.
        result = np.clip(whole, limits.min, min(limits.max, 2**53)).astype(limits.dtype)
        return np.where(whole >= limits.max, np.array(limits.max, limits.dtype), result)
    if saturate:
        low = max(limits.min, np.iinfo(a.dtype).min)
        a = np.clip(a, low, min(limits.max, np.iinfo(a.dtype).max))
    return a.astype(limits.dtype)


Plan = tuple[str, list[str], Function]


def _prmt(a: Values, b: Values, selector: Values) -> Values:
    """Bytes of two registers by a selector's nibbles; their top bit repeats the byte's sign."""
    source = np.stack([*_bytes(a), *_bytes(b)], 1).astype(np.uint32)
    result = np.zeros_like(a)
    for i in range(4):
        nibble = (selector >> np.uint32(4 * i)) & np.uint32(15)
        byte = np.take_along_axis(source, (nibble & 7)[:, None].astype(np.int64), 1)[:, 0]
        sign = np.where(byte & 0x80, np.uint32(0xFF), np.uint32(0))
        result |= np.where(nibble & 8, sign, byte) << np.uint32(8 * i)
    return result


def _bytes(bits: Values) -> list[Values]:
    return [(bits >> np.uint32(8 * i)) & np.uint32(0xFF) for i in range(4)]


def _dot(opcode: tuple[str, ...]) -> Plan:
    """dp4a: four bytes of a by four of b; dp2a: two 16-bit parts of a by two bytes of b."""
    kinds = opcode[-2:]
    result = "s32" if "s32" in kinds else "u32"
    bits = 16 if opcode[0] == "dp2a" else 8

    def parts(word: Values, kind: str, bits: int) -> list[Values]:
        signed = {"s32": {8: np.int8, 16: np.int16}, "u32": {8: np.uint8, 16: np.uint16}}
        masked = [word >> np.uint32(at) & np.uint32(2**bits - 1) for at in range(0, 32, bits)]
        plain = signed["u32"][bits]
        return [part.astype(plain).view(signed[kind][bits]).astype(np.int64) for part in masked]

    def dot(a: Values, b: Values, c: Values) -> Values:
        first = 2 if "hi" in opcode else 0
        total = c.astype(np.int64)
        for x, y in zip(parts(a, kinds[0], bits), parts(b, kinds[1], 8)[first:], strict=False):
            total = total + x * y
        return total.astype(c.dtype)

    return result, ["b32", "b32", result], dot


def _lop3(opcode: tuple[str, ...]) -> Plan:
    def lop3(a: Values, b: Values, c: Values, table: Values) -> Values:
        result = np.zeros_like(a)
        for i in range(8):
            term = (a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c)
            result |= np.where((table >> np.uint32(i)) & 1, term, np.zeros_like(term))
        return result

    return "b32", ["b32"] * 4, lop3


def _funnel(opcode: tuple[str, ...]) -> Plan:
    def shift(low: Values, high: Values, by: Values) -> Values:
        count = np.minimum(by, 32) if "clamp" in opcode else by & np.uint32(31)
        both = (high.astype(np.uint64) << np.uint64(32)) | low.astype(np.uint64)
        if opcode[1] == "l":
            return ((both << count.astype(np.uint64)) >> np.uint64(32)).astype(np.uint32)
        return (both >> count.astype(np.uint64)).astype(np.uint32)

    return "b32", ["b32"] * 3, shift


def _extract(opcode: tuple[str, ...]) -> Plan:
    kind, bits = opcode[-1], 8 * BYTES[opcode[-1]]

    def bfe(a: Values, at: Values, count: Values) -> Values:
        at, count = at & 0xFF, np.minimum(count & 0xFF, bits)
        up = np.maximum(bits - at.astype(np.int64) - count, 0).astype(a.dtype)
        down = np.minimum(up.astype(np.int64) + at, bits - 1).astype(a.dtype)
        return np.where(count == 0, 0, (a << up) >> down)

    return kind, [kind, "u32", "u32"], bfe


def _insert(opcode: tuple[str, ...]) -> Plan:
    kind = opcode[-1]

    def bfi(a: Values, b: Values, at: Values, count: Values) -> Values:
        one = np.array(1, a.dtype)
        at, count = (at & 31).astype(a.dtype), (count & 63).astype(a.dtype)
        mask = ((one << count) - one) << at
        return (b & ~mask) | ((a << at) & mask)

    return kind, [kind, kind, "u32", "u32"], bfi


def _count(opcode: tuple[str, ...]) -> Plan:
    kind, bits = opcode[-1], 8 * BYTES[opcode[-1]]

    def popc(a: Values) -> Values:
        return np.bitwise_count(a).astype(np.uint32)

    def clz(a: Values) -> Values:
        exact = np.frexp(a.astype(np.float64))[1]  # right for 32 bits
        return np.where(a == 0, bits, bits - exact).astype(np.uint32)

    def brev(a: Values) -> Values:
        result = np.zeros_like(a)
        for i in range(bits):
            result |= ((a >> np.array(i, a.dtype)) & np.array(1, a.dtype)) << np.array(
                bits - 1 - i, a.dtype
            )
        return result

    return {
        "popc": ("u32", [kind], popc),
        "clz": ("u32", [kind], clz),
        "brev": (kind, [kind], brev),
    }[opcode[0]]


def _absolute(opcode: tuple[str, ...]) -> Plan:
    functions = {"abs": np.abs, "neg": np.negative, "not": np.invert}
    if opcode[-1] == "pred":
        return "pred", ["pred"], np.logical_not
    return opcode[-1], [opcode[-1]], functions[opcode[0]]


def _select(opcode: tuple[str, ...]) -> Plan:
    kind = opcode[-1] if opcode[-1] not in FLOATS else f"b{8 * BYTES[opcode[-1]]}"
    return kind, [kind, kind, "pred"], lambda a, b, p: np.where(p, a, b)


def _copysign(opcode: tuple[str, ...]) -> Plan:
    return opcode[-1], [opcode[-1]] * 2, lambda sign, a: np.copysign(a, sign)


def _unknown_form(opcode: tuple[str, ...]) -> Plan:
    raise PtxError(f"this form is not known: {'.'.join(opcode)}")


_OTHERS: dict[str, Callable[[tuple[str, ...]], Plan]] = {
    "prmt": lambda opcode: (
        ("b32", ["b32"] * 3, _prmt) if len(opcode) == 2 else _unknown_form(opcode)
    ),
    "dp4a": _dot,
    "dp2a": _dot,
    "lop3": _lop3,
    "shf": _funnel,
    "bfe": _extract,
    "bfi": _insert,
    "popc": _count,
    "clz": _count,
    "brev": _count,
    "abs": _absolute,
    "neg": _absolute,
    "not": _absolute,
    "selp": _select,
    "copysign": _copysign,
}
