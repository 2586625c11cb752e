"""Lexer of Relay text: tokens with their positions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ...errors import BatonError, RelaySyntaxError, RelayTypeError

_NUMBER = r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?:bf16|f(?:16|32|64)?|[iu](?:1|8|16|32|64)?)?(?![\w])"
_WORD = r"[A-Za-z_][\w/]*"

_TOKEN = re.compile(
    rf"""
    (?:\s+|//[^\n]*|/\*[^*]*(?:\*(?!/)[^*]*)*\*/)*
    (?:
      (?P<graph>%\d+)
    | %(?P<local>[A-Za-z_/][\w/]*(?:\.[A-Za-z_][\w/]*)*)
    | (?P<tensor>Tensor\s*\[\s*\([^()\n]*\)\s*,\s*\w+\s*\])
    | (?P<meta>meta\s*\[\s*[\w.]+\s*\]\s*\[\s*\d+\s*\])
    | (?P<word>{_WORD}(?:\.{_WORD})*)
    | (?P<ints>\[\s*(?:-?\d+\s*,\s*)*-?\d+\s*\])
    | (?P<number>{_NUMBER})
    | @(?P<global>{_WORD}(?:\.{_WORD})*)
    | (?P<string>"(?:[^"\\\n]|\\.)*")
    | (?P<header>\#\[version\s*=\s*"[^"\n]*"\])
    | (?P<mark>->|=>|==|!=|<=|>=|/(?!\*)|[-+*<>=?()\[\]{{}}.,;:])
    | (?P<end>\Z)
    )""",
    re.VERBOSE,
)
_METADATA = "#[metadata]"
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


@dataclass(slots=True)
class Tokens:
    """Tokens of a text in parallel lists, ending with a token of kind "end".

    `kinds[i]` is "mark", "word", "graph", "local", "global", "number", "ints", "string",
    "tensor", "meta", "header" or "end"; `values[i]` its text without sigils and quotes.
    """

    source: str
    text: str
    kinds: list[str]
    values: list[str]
    positions: list[int]

    def error(self, position: int, message: str) -> RelaySyntaxError:
        """Create a syntax error that shows the line at a character position."""
        return error_at(self.source, self.text, position, message)


def error_at(source: str, text: str, position: int, message: str) -> RelaySyntaxError:
    """Create a syntax error with `source:line:column`, the line, and a caret under the column."""
    return RelaySyntaxError(located(source, text, position, message))


def located(source: str, text: str, position: int, message: str) -> str:
    """Format a message with `source:line:column`, the line, and a caret under the column."""
    position = max(0, min(position, len(text)))
    start = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    line = text[start : len(text) if end < 0 else end]
    number, column = text.count("\n", 0, position) + 1, position - start
    first = max(0, column - 100)  # lines of several thousand characters are common
    shown = line[first : column + 60]
    return f"{source}:{number}:{column + 1}: {message}\n  {shown}\n  {' ' * (column - first)}^"


@contextmanager
def naming_place(source: str, text: str | None, position: int) -> Iterator[None]:
    """Add the text position to errors raised inside; convert TypeError to RelayTypeError."""
    try:
        yield
    except (BatonError, TypeError) as error:
        kind = type(error) if isinstance(error, BatonError) else RelayTypeError
        message = f"{source}: {error}"
        if position >= 0 and text is not None:
            message = located(source, text, position, str(error))
        raise kind(message) from None


def split_metadata(text: str) -> tuple[str, str | None]:
    """Split a text into the program and the JSON of its metadata section, if any."""
    at = text.find(_METADATA)
    while at > 0 and text[text.rfind("\n", 0, at) + 1 : at].strip():
        at = text.find(_METADATA, at + 1)  # inside a string or comment of the program
    if at < 0:
        return text, None
    return text[:at], text[at + len(_METADATA) :]


def tokenize(text: str, source: str) -> Tokens:
    """Split a program without metadata into tokens; RelaySyntaxError if malformed, unterminated."""
    lexed = _without_nested_comments(text, source)
    tokens = Tokens(source, text, [], [], [])
    kinds, values, positions = tokens.kinds, tokens.values, tokens.positions
    position, match = 0, _TOKEN.match
    while True:
        found = match(lexed, position)
        if found is None:
            raise _bad_character(tokens, lexed, position)
        kind = found.lastgroup or "end"
        value = found.group(kind)
        position = found.end()
        kinds.append(kind)
        values.append(value if kind != "string" else _unquoted(value))
        positions.append(position - len(value) - (kind in ("local", "global")))
        if kind == "end":
            return tokens


def _unquoted(literal: str) -> str:
    if "\\" not in literal:
        return literal[1:-1]
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), literal[1:-1])


def _bad_character(tokens: Tokens, lexed: str, position: int) -> RelaySyntaxError:
    rest = re.compile(r"(?:\s+|//[^\n]*|/\*[^*]*(?:\*(?!/)[^*]*)*\*/)*")
    skipped = rest.match(lexed, position)
    at = skipped.end() if skipped else position
    if lexed.startswith("/*", at):
        return tokens.error(at, "this comment does not end")
    if lexed[at] == '"':
        return tokens.error(at, "this string does not end in its line")
    return tokens.error(at, f"unexpected character {lexed[at]!r}")


def _without_nested_comments(text: str, source: str) -> str:
    """Blank nested comments, which are rare."""
    if not re.search(r"/\*(?:(?!\*/).)*/\*", text, re.DOTALL):
        return text
    blanked, depth, opened = list(text), 0, 0
    for found in re.finditer(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*|\*/', text):
        word, at = found.group(), found.start()
        if word == "/*":
            opened = at if depth == 0 else opened
            depth += 1
        elif word == "*/" and depth:
            depth -= 1
            if depth == 0:
                for index in range(opened, at + 2):
                    if blanked[index] != "\n":
                        blanked[index] = " "
    if depth:
        raise error_at(source, text, opened, "this comment does not end")
    return "".join(blanked)
