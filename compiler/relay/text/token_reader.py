"""Token stream with parsers that need no scopes: types and scalar constants."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from ...errors import RelaySyntaxError, SavedModuleError
from ..saved.arrays import bfloat16
from . import syntax
from .lexer import Tokens

_SCALARS = re.compile(r"(?:bool|bfloat16|(?:u?int|float)(?:1|4|8|16|32|64))(?:x\d+)?\Z")
_SHORT = {"int": "int32", "uint": "uint32", "float": "float32"}
SUFFIX = re.compile(r"(bf16|f(?:16|32|64)?|[iu](?:1|8|16|32|64)?)\Z")
SPECIAL = re.compile(r"(inf|nan)(f(?:16|32|64)?)?\Z")
_EXTENT = re.compile(r"\d{1,18}(?:i(?:32|64))?\Z")
_MAX_DEPTH = 400
_MAX_FUNCTIONS_FRAMES = 40

Item = TypeVar("Item")


class TokenReader:
    """Cursor over a list of tokens."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self.kinds, self.values = tokens.kinds, tokens.values
        self.at = 0
        self.depth = 0

    # Errors and single tokens.

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """Raise the recursion limit for deep nesting; add positions to metadata errors."""
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(max(limit, _MAX_DEPTH * _MAX_FUNCTIONS_FRAMES))
        try:
            yield
        except SavedModuleError as error:
            raise self.error(str(error), max(self.at - 1, 0)) from None
        finally:
            sys.setrecursionlimit(limit)

    def error(self, message: str, at: int | None = None) -> RelaySyntaxError:
        index = self.at if at is None else at
        return self.tokens.error(self.tokens.positions[index], message)

    def shown(self) -> str:
        return (
            "the end of the text" if self.kinds[self.at] == "end" else f"`{self.values[self.at]}`"
        )

    def is_mark(self, mark: str) -> bool:
        return self.values[self.at] == mark and self.kinds[self.at] == "mark"

    def accept(self, mark: str) -> bool:
        if self.values[self.at] == mark and self.kinds[self.at] == "mark":
            self.at += 1
            return True
        return False

    def expect(self, mark: str, where: str) -> None:
        if not self.accept(mark):
            raise self.error(f"expected `{mark}` {where}, found {self.shown()}")

    def accept_word(self, word: str) -> bool:
        if self.values[self.at] == word and self.kinds[self.at] == "word":
            self.at += 1
            return True
        return False

    def take(self, kind: str, what: str) -> str:
        if self.kinds[self.at] != kind:
            raise self.error(f"expected {what}, found {self.shown()}")
        self.at += 1
        return self.values[self.at - 1]

    def expect_end(self) -> None:
        if self.kinds[self.at] != "end":
            raise self.error(f"expected the end of the text, found {self.shown()}")

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise self.error(f"expressions are nested more than {_MAX_DEPTH} deep")

    @contextmanager
    def nested(self) -> Iterator[None]:
        self.deeper()
        yield
        self.depth -= 1

    def listed(self, parse: Callable[[], Item], closer: str, where: str) -> list[Item]:
        """Parse items separated by commas, up to and including the closing mark."""
        items = []
        while not self.accept(closer):
            items.append(parse())
            if not self.is_mark(closer):
                self.expect(",", where)
        return items

    def type_params(self) -> tuple[str, ...]:
        if not self.accept("["):
            return ()
        take = functools.partial(self.take, "word", "a type variable")
        return tuple(self.listed(take, "]", "between type variables"))

    def scalar(self, literal: str, at: int) -> Any:
        """Parse a scalar constant: `3`, `1f`, `2e-05f`, `-1i8`, `1.5f64`."""
        suffix = SUFFIX.search(literal)
        digits = literal[: suffix.start()] if suffix else literal
        kind = suffix.group() if suffix else ""
        if not kind and not re.fullmatch(r"-?\d+", digits):
            raise self.error(f"{literal} needs a suffix, e.g. {literal}f", at)
        try:
            if not kind:
                fits = -(1 << 31) <= int(digits) < 1 << 31
                return _integer(digits, "i32" if fits else "i64")
            if kind[0] in "iu":
                return _integer(digits, kind if kind[1:] else f"{kind}32")
            if kind == "bf16":
                return np.asarray(float(digits), bfloat16())[()]
            return _float(digits, f"float{kind[1:] or 32}")
        except (ValueError, OverflowError, TypeError) as error:
            raise self.error(f"{literal} is not a constant: {error}", at) from None

    # Types.

    def type(self) -> syntax.Type:
        with self.nested():
            at, kind, value = self.at, self.kinds[self.at], self.values[self.at]
            self.at += 1
            if kind == "tensor":
                return self.tensor_type(value, at)
            if kind == "meta":
                return syntax.UnknownType()
            if kind == "mark" and value == "(":
                return syntax.TupleType(self.type_list(")"))
            if kind == "word":
                return self.named_type(value)
            self.at = at
            raise self.error(f"expected a type, found {self.shown()}")

    def optional_type(self, mark: str = ":") -> syntax.Type | None:
        """Parse a type if it follows a mark."""
        return self.type() if self.accept(mark) else None

    def named_type(self, value: str) -> syntax.Type:
        if value == "_":
            return syntax.UnknownType()
        value = _SHORT.get(value, value)
        if _SCALARS.match(value):
            return syntax.TensorType((), value)
        if value == "fn":
            names = self.type_params()
            self.expect("(", "before the types of the arguments")
            arguments = self.type_list(")")
            self.expect("->", "before the type of the result")
            return syntax.FuncType(arguments, self.type(), names)
        if value == "ref" and self.accept("("):
            made = syntax.RefType(self.type())
            self.expect(")", "after the type of a reference")
            return made
        if self.accept("["):
            return syntax.NamedType(value, self.type_list("]"), True)
        return syntax.NamedType(value)

    def type_list(self, closer: str) -> tuple[syntax.Type, ...]:
        return tuple(self.listed(self.type, closer, f"or `{closer}` after a type"))

    def tensor_type(self, written: str, at: int) -> syntax.Type:
        inside, _, dtype = written[written.index("(") + 1 :].rpartition(")")
        dtype = dtype.strip(" ,]\n\t")
        dtype = _SHORT.get(dtype, dtype)
        if not _SCALARS.match(dtype):
            raise self.error(f"there is no data type {dtype}", at)
        shape: list[int | None] = []
        for part in inside.split(","):
            dim = part.strip()
            if _EXTENT.match(dim):
                shape.append(int(dim.split("i")[0]))
            elif dim == "?" or dim.startswith("meta"):
                shape.append(None)
            elif dim or part is not inside.split(",")[-1]:
                raise self.error(f"{dim or 'nothing'} is not a dimension", at)
        return syntax.TensorType(tuple(shape), dtype)


def _integer(digits: str, kind: str) -> Any:
    bits = kind[1:]
    if bits == "1":
        return np.bool_(int(digits))
    dtype = np.dtype(f"{'u' if kind[0] == 'u' else ''}int{bits}")
    value = int(digits)
    if not np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
        raise ValueError(f"it does not fit {dtype}")
    return dtype.type(value)


def _float(digits: str, dtype: str) -> Any:
    value = float(digits)
    if abs(value) > float(np.finfo(dtype).max):
        raise ValueError(f"it does not fit {dtype}")
    return np.dtype(dtype).type(value)


def special_value(special: re.Match[str]) -> Any:
    width = (special[2] or "f")[1:] or "32"
    return np.dtype(f"float{width}").type(float(special[1]))
