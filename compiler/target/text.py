"""The command-line form of targets, "llvm -mcpu=skylake-avx512 -num-cores=18", as plain text.

The grammar is that of TVM 0.18. It knows nothing of kinds and option types:

    target  = name { option }
    option  = dashes key "=" value | dashes key value | dashes key
    dashes  = "-" { "-" }

Words end at white space. Single quotes keep white space and commas together, and a backslash takes
the next character as it is. In the second form the value is the next word, which must not begin
with a dash; in the third the value is "1". Elements of an array are separated by commas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from compiler.errors import TargetError

_SPECIAL = frozenset(" \t\r\n\f\v\\',")


@dataclass(frozen=True)
class TargetText:
    """A target string taken apart."""

    name: str  # first word: a kind or a tag
    options: dict[str, str]  # values still quoted, in the order in which they were written


def read(text: str) -> TargetText:
    """Take a target string apart.

    Raises TargetError: no words, an open quote, a trailing backslash, a non-option, a key twice.
    """
    words = _split(text, str.isspace, text)
    if not words:
        raise TargetError('the target string is empty; pass for example "llvm" for this machine')
    name = unquote(words[0])
    if name.startswith("-"):
        raise TargetError(
            f"target {text!r} begins with an option; begin with a kind: 'llvm {text.strip()}'"
        )
    options: dict[str, str] = {}
    position = 1
    while position < len(words):
        word = words[position]
        position += 1
        if not word.startswith("-"):
            raise TargetError(
                f"{word!r} in target {text!r} is not an option; write -key=value, "
                "and separate array elements by commas alone"
            )
        key, equals, value = word.lstrip("-").partition("=")
        if not equals:
            if position < len(words) and not words[position].startswith("-"):
                value = words[position]
                position += 1
            else:
                value = "1"
        if not key:
            raise TargetError(f"option {word!r} in target {text!r} has no name")
        if key in options:
            raise TargetError(f"option -{key} is given twice in target {text!r}")
        options[key] = value
    return TargetText(name, options)


def elements(value: str) -> list[str]:
    """Elements of an array option's still quoted value; none for an empty value."""
    if not value:
        return []
    return [unquote(part) for part in _split(value, ",".__eq__, value, keep_empty=True)]


def unquote(value: str) -> str:
    """Value without its quotes and escapes."""
    plain: list[str] = []
    characters = iter(value)
    for character in characters:
        if character == "\\":
            plain.append(next(characters))
        elif character != "'":
            plain.append(character)
    return "".join(plain)


def write(name: str, options: Iterable[tuple[str, str | list[str]]]) -> str:
    """One line that `read` takes apart again; a list becomes comma separated elements."""
    words = [_quote(name)]
    for key, value in options:
        if isinstance(value, str):
            words.append(f"-{key}={_quote(value)}")
        else:
            # A lone empty element must not read as no element.
            listed = ["''"] if value == [""] else [_quote(element) for element in value]
            words.append(f"-{key}={','.join(listed)}")
    return " ".join(words)


def _quote(value: str) -> str:
    """Value with every character escaped that would end a word or an element."""
    return "".join(f"\\{c}" if c in _SPECIAL or c.isspace() else c for c in value)


def _split(
    text: str, separates: Callable[[str], bool], whole: str, keep_empty: bool = False
) -> list[str]:
    """Parts of a text between separators that are neither quoted nor escaped."""
    parts: list[str] = []
    part = ""
    quoted = False
    characters = iter(text)
    for character in characters:
        if character == "\\":
            escaped = next(characters, None)
            if escaped is None:
                raise TargetError(f"target {whole!r} ends in a backslash that escapes nothing")
            part += character + escaped
        elif separates(character) and not quoted:
            if part or keep_empty:
                parts.append(part)
            part = ""
        else:
            quoted ^= character == "'"
            part += character
    if quoted:
        raise TargetError(f"a single quote in target {whole!r} is never closed")
    if part or keep_empty:
        parts.append(part)
    return parts
