"""Baton: Relay-era compile pipelines on today's TVM.

Submodules load on first use: `compiler.relay`, `compiler.partition`, `compiler.autotvm`,
`compiler.auto_scheduler`, `compiler.runtime`, `compiler.target`, `compiler.ort`, `compiler.gluon`
with its array functions `compiler.np` and `compiler.npx`.
"""

from . import own_packages
from .support.lazy_import import lazy_attributes

own_packages.load()

__getattr__ = lazy_attributes(
    __name__,
    {
        **{name: f".gluon.{name}" for name in ("np", "npx")},
        "PassContext": ".pass_context",
        "__version__": ".version",
        **{
            name: f".{name}"
            for name in (
                "auto_scheduler",
                "autotvm",
                "gluon",
                "legacy",
                "model",
                "ort",
                "partition",
                "relay",
                "runtime",
                "symbol",
                "target",
            )
        },
    },
)
