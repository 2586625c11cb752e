"""Version counter that increases when the value of any parameter changes.

A cached operator compiled parameters in; one comparison of this count tells a call that none of
them can have changed since.
"""

from __future__ import annotations

_CHANGES = [0]


def current() -> int:
    """The count."""
    return _CHANGES[0]


def advance() -> None:
    """Note that a parameter has changed."""
    _CHANGES[0] += 1
