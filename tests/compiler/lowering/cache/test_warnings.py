from __future__ import annotations

import logging
import threading

import pytest

from compiler.lowering.cache.warnings import recorded_warnings, repeat

LOGGER = logging.getLogger("baton.test_messages")


@pytest.fixture
def last_resort(monkeypatch):
    """What logging shows where nobody has a handler."""
    shown: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: shown.append(record.getMessage())  # type: ignore[method-assign]
    monkeypatch.setattr(logging, "lastResort", handler)
    monkeypatch.setattr(logging.getLogger("baton"), "propagate", False)
    return shown


def test_warnings_of_this_thread_are_recorded_and_repeated(caplog):
    with recorded_warnings("baton") as messages:
        LOGGER.warning("%d of %d", 1, 2)
        LOGGER.info("no warning")
        other = threading.Thread(target=LOGGER.warning, args=("of another thread",))
        other.start()
        other.join()
    assert messages == [(LOGGER.name, logging.WARNING, "1 of 2")]
    caplog.clear()
    repeat(messages)
    assert caplog.messages == ["1 of 2"]


def test_a_warning_that_is_recorded_is_still_shown_once(last_resort, monkeypatch):
    monkeypatch.setattr(logging.getLogger("baton"), "handlers", [])  # pytest's
    with recorded_warnings("baton"), recorded_warnings("baton", "compiler"):
        LOGGER.warning("seen")
    assert last_resort == ["seen"]


def test_a_warning_that_somebody_handles_is_not_shown_too(last_resort):
    handler = logging.NullHandler()
    LOGGER.addHandler(handler)
    with recorded_warnings("baton"):
        LOGGER.warning("handled")
    LOGGER.removeHandler(handler)
    assert last_resort == []
