"""Baton: Relay-era compile pipelines on today's TVM.

Submodules load on first use: `compiler.relay`, `compiler.partition`, `compiler.autotvm`,
`compiler.auto_scheduler`, `compiler.runtime`, `compiler.target`, `compiler.ort`, `compiler.mxnet`.
"""

from . import _import_guard
from .support.lazy_import import by_module, lazy_attributes

_import_guard.load_packages()

__getattr__ = lazy_attributes(
    __name__,
    by_module(
        {
            ".pass_context": "PassContext",
            ".version": "__version__",
            ".support.progress": "on_progress",
            ".auto_scheduler": "auto_scheduler",
            ".autotvm": "autotvm",
            ".legacy": "legacy",
            ".mxnet": "mxnet",
            ".ort": "ort",
            ".partition": "partition",
            ".relay": "relay",
            ".runtime": "runtime",
            ".target": "target",
        }
    ),
)
