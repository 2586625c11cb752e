"""Baton: Relay-era compile pipelines on today's TVM.

Submodules load on first use: `compiler.relay`, `compiler.partition`, `compiler.autotvm`,
`compiler.auto_scheduler`, `compiler.runtime`, `compiler.target`.
"""

from .lazy import lazy_attributes

__version__ = "0.1.0"

__getattr__ = lazy_attributes(
    __name__,
    {
        name: f".{name}"
        for name in (
            "auto_scheduler",
            "autotvm",
            "partition",
            "relay",
            "runtime",
            "symbol",
            "target",
        )
    },
)
