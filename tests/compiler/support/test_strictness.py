"""Mistakes that are errors, and warnings while old scripts run."""

from __future__ import annotations

import pytest

from compiler import legacy
from compiler.errors import BatonError
from compiler.support import strictness


def test_a_mistake_is_an_error_and_for_old_scripts_a_warning(caplog):
    error = BatonError("no such thing")
    with pytest.raises(BatonError, match="no such thing"):
        strictness.refuse(error, "it is ignored")
    assert not caplog.text
    with legacy.installed():
        strictness.refuse(error, "it is ignored")
    assert "no such thing: it is ignored" in caplog.text
    with pytest.raises(BatonError):
        strictness.refuse(error, "it is ignored")
