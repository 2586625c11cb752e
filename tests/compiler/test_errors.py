"""Tests of what all of Baton's errors have in common."""

from __future__ import annotations

import inspect

from compiler import errors


def test_every_message_can_be_printed_whatever_it_quotes() -> None:
    known = inspect.getmembers(errors, inspect.isclass)
    classes = [each for _, each in known if each.__str__ is errors.BatonError.__str__]
    assert errors.RecordError in classes and len(classes) > 20
    for each in classes:
        assert str(each("line 1 holds \ud800")).encode("utf-8").endswith(b"\\ud800")
