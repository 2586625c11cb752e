"""`relay.backend`: the options of a build that chose executor and runtime."""

from __future__ import annotations

from ...lazy import lazy_attributes

__getattr__ = lazy_attributes(
    __name__,
    {
        "Executor": ".options",
        "Runtime": ".options",
        "executor_factory": ".executor_factory",
        "te_compiler": ".te_compiler",
        "vm": "..vm",
    },
)
