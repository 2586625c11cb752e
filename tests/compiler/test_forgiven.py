"""Mistakes that are errors, and warnings while old scripts run."""

from __future__ import annotations

import pytest

from compiler import forgiven, legacy
from compiler.errors import BatonError


def test_a_mistake_is_an_error_and_for_old_scripts_a_warning(caplog):
    error = BatonError("no such thing")
    with pytest.raises(BatonError, match="no such thing"):
        forgiven.refuse(error, "it is ignored")
    assert not caplog.text
    with legacy.installed():
        forgiven.refuse(error, "it is ignored")
    assert "no such thing: it is ignored" in caplog.text
    with pytest.raises(BatonError):
        forgiven.refuse(error, "it is ignored")
