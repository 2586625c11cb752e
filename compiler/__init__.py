"""Baton: Relay-era compile pipelines on today's TVM.

Submodules load on first use: `compiler.relay`, `compiler.partition`, `compiler.autotvm`,
`compiler.auto_scheduler`, `compiler.runtime`, `compiler.target`, `compiler.ort`, `compiler.mxnet`.
"""

from . import _import_guard
from .support.lazy_import import lazy_attributes

_import_guard.load_packages()

_PACKAGES = "auto_scheduler autotvm legacy mxnet ort partition relay runtime target"

__getattr__ = lazy_attributes(
    __name__,
    {
        "PassContext": ".pass_context",
        "__version__": ".version",
        "on_progress": ".support.progress",
        **{name: f".{name}" for name in _PACKAGES.split()},
    },
)
