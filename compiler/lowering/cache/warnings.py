"""Warnings recorded during a build and replayed on a cache hit."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from .kernel_cache import logger as _cache_logger

Message = tuple[str, int, str]
"""Logger, level and text of a log message."""


@contextmanager
def recorded_warnings(*loggers: str) -> Iterator[list[Message]]:
    """Record the warnings that this thread logs to some loggers, except those of the cache."""
    handler = _Recorder()
    for name in loggers:
        logging.getLogger(name).addHandler(handler)
    try:
        yield handler.messages
    finally:
        for name in loggers:
            logging.getLogger(name).removeHandler(handler)


def repeat(messages: Sequence[Message]) -> None:
    for name, level, text in messages:
        logging.getLogger(name).log(level, "%s", text)


class _Recorder(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[Message] = []
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread and record.name != _cache_logger.name:
            self.messages.append((record.name, record.levelno, record.getMessage()))
        # `logging` prints a warning on its own only if there is no handler at all.
        handlers = list(_handlers_of(record.name))
        nobody_shows_it = all(isinstance(each, _Recorder) for each in handlers)
        if nobody_shows_it and handlers[0] is self and logging.lastResort is not None:
            logging.lastResort.handle(record)


def _handlers_of(name: str) -> Iterator[logging.Handler]:
    logger: logging.Logger | None = logging.getLogger(name)
    while logger is not None:
        yield from logger.handlers
        logger = logger.parent if logger.propagate else None
