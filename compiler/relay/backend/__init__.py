"""`relay.backend`: build options, build results and executors under their Relay names."""

from __future__ import annotations

from ...support.lazy_import import lazy_attributes

__getattr__ = lazy_attributes(
    __name__,
    {
        "Executor": ".options",
        "Runtime": ".options",
        "compile_engine": ".te_compiler",
        "executor_factory": ".executor_factory",
        "interpreter": ".interpreter",
        "te_compiler": ".te_compiler",
        "vm": "..vm",
    },
)
