"""PTX text as kernels: their parameters, arrays and instructions.

Read is what nvcc writes for one module. Functions that are called (`.func`) are not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

# Bytes of an element, by the type's suffix.
BYTES = {
    **{kind + str(bits): bits // 8 for kind in "bsu" for bits in (8, 16, 32, 64)},
    **{"f16": 2, "bf16": 2, "f32": 4, "tf32": 4, "f64": 8, "f16x2": 4, "bf16x2": 4, "b128": 16},
}
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*\(([^)]*)\)([^{;]*)\{")
_PARAM = re.compile(
    r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+(?:\.ptr[^,]*?)?([\w$]+)(?:\[\d+\])?\s*$"
)
_ARRAY = re.compile(
    r"\.(shared|global|const|local)\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+([\w$]+)\s*"
    r"(?:\[(\d*)\])?\s*(?:=\s*(.*))?$",
    re.DOTALL,
)
_LABEL = re.compile(r"\s*([\w$]+):(?!:)")
_REGISTERS = re.compile(r"\.reg\s*\.(\w+)\s+(.*)", re.DOTALL)
_NAME = re.compile(r"%?[\w$]+")
_LINKING = re.compile(r"\.(visible|extern|weak|common)\s+")


class PtxError(Exception):
    """PTX that the interpreter can't read or run."""


@dataclass(frozen=True)
class Array:
    """A variable of a state space; `size` in bytes is None for the dynamic shared memory."""

    name: str
    space: str
    align: int
    size: int | None
    values: bytes = b""


@dataclass(frozen=True)
class Address:
    """`[base + offset]`; the base is a register or an array's name, or absent."""

    base: str
    offset: int


@dataclass(frozen=True)
class Instruction:
    """One instruction.

    Attributes
    ----------
    text : str
        As it is written, for messages.
    opcode : tuple of str
        What stands between its points.
    operands : tuple
        Each a str (register, immediate, label, array), an `Address`, or a tuple of str (a vector).
    guard : str
        "%p1" or "!%p1" where only some threads run it, else "".
    """

    text: str
    opcode: tuple[str, ...]
    operands: tuple[str | Address | tuple[str, ...], ...]
    guard: str


@dataclass
class Kernel:
    """An entry function: registers (name to type), instructions, and where its labels point."""

    name: str
    params: list[tuple[str, str]]
    threads: int | None
    registers: dict[str, str] = field(default_factory=dict)
    arrays: list[Array] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)


def kernels(text: str) -> dict[str, Kernel]:
    """The kernels of a module by their names.

    Raises
    ------
    PtxError
        It has a declaration that is not understood.
    """
    text = _COMMENT.sub("", text)
    found, outside, at = {}, [], 0
    for match in _ENTRY.finditer(text):
        outside.append(text[at : match.start()])
        params = [_param(param) for param in match[2].split(",") if param.strip()]
        limit = re.search(r"\.maxntid\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?", match[3])
        threads = None
        if limit:
            threads = int(limit[1]) * int(limit[2] or 1) * int(limit[3] or 1)
        kernel = Kernel(match[1], params, threads)
        at = _read_body(text, match.end(), kernel)
        found[kernel.name] = kernel
    outside.append(text[at:])
    declared = [_array(piece) for part in outside for piece in part.split(";")]
    for kernel in found.values():
        kernel.arrays += [array for array in declared if array is not None]
    return found


def _param(text: str) -> tuple[str, str]:
    match = _PARAM.match(text.strip())
    if match is None:
        raise PtxError(f"the parameter is not understood: {text.strip()}")
    return match[2], match[1]


def _array(statement: str) -> Array | None:
    statement = _LINKING.sub("", statement.strip())
    match = _ARRAY.search(statement)
    if match is None:
        return None
    space, align, kind, name, count, values = match.groups()
    width = BYTES[kind]
    size = None if count == "" else width * int(count or 1)
    content = b""
    if values:
        numbers = [int(number, 0) for number in re.findall(r"-?\w+", values)]
        content = b"".join((n % (1 << 8 * width)).to_bytes(width, "little") for n in numbers)
    return Array(name, space, int(align or width), size, content)


def _read_body(text: str, at: int, kernel: Kernel) -> int:
    """Read statements up to the brace that closes the kernel; where the text goes on."""
    scopes: list[dict[str, str]] = [{}]
    while True:
        while text[at].isspace() or text[at] == ";":
            at += 1
        if text[at] == "{":
            scopes.append({})
            at += 1
        elif text[at] == "}":
            scopes.pop()
            at += 1
            if not scopes:
                return at
        elif label := _LABEL.match(text, at):
            kernel.labels[label[1]] = len(kernel.instructions)
            at = label.end()
        else:
            end = text.index(";", at)
            _read_statement(" ".join(text[at:end].split()), kernel, scopes)
            at = end + 1


def _read_statement(text: str, kernel: Kernel, scopes: list[dict[str, str]]) -> None:
    if declared := _REGISTERS.match(text):
        for name in declared[2].split(","):
            _declare(name.strip(), declared[1], kernel, scopes)
    elif (array := _array(text)) is not None:
        kernel.arrays.append(array)
    elif not text.startswith("."):
        for scope in scopes[1:]:  # a register of an inner scope may have an outer one's name
            text = _NAME.sub(lambda found, scope=scope: scope.get(found[0], found[0]), text)
        kernel.instructions.append(_instruction(text))


def _declare(name: str, kind: str, kernel: Kernel, scopes: list[dict[str, str]]) -> None:
    many = re.fullmatch(r"(%?[\w$]+)<(\d+)>", name)
    if many:
        kernel.registers.update({f"{many[1]}{i}": kind for i in range(int(many[2]))})
        return
    inner = f"%{name.strip('%')}@{len(kernel.registers)}" if len(scopes) > 1 else name
    scopes[-1][name] = inner
    kernel.registers[inner] = kind


def _instruction(text: str) -> Instruction:
    guard, rest = "", text
    if text.startswith("@"):
        guard, rest = text[1:].split(None, 1)
    opcode, _, operands = rest.replace("shared::cta", "shared").partition(" ")
    return Instruction(text, tuple(opcode.split(".")), tuple(_operands(operands)), guard)


def _operands(text: str) -> list[str | Address | tuple[str, ...]]:
    found: list[str | Address | tuple[str, ...]] = []
    for piece in re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,{}\[\]\s]+", text):
        if piece.startswith("{"):
            found.append(tuple(name.strip() for name in piece[1:-1].split(",")))
        elif piece.startswith("["):
            base, _, offset = piece[1:-1].replace(" ", "").partition("+")
            found.append(Address(base, int(offset or 0)))
        else:
            found.append(piece)
    return found
