"""`tvmc`: TVM's old command and its Python functions, over those that `baton` uses.

    from tvm.driver import tvmc

    model = tvmc.load("model.onnx", shape_dict={"data": [1, 3, 224, 224]})
    package = tvmc.compile(model, target="llvm", package_path="model.tar")
    result = tvmc.run(package, device="cpu")

The command is `baton tvmc compile|run|tune`. A package is a tar of `mod.so`, the exported library,
with `mod.json` and `mod.params` as TVM's packages had them.
"""

from __future__ import annotations

from compiler.errors import BatonError
from compiler.support.lazy_import import lazy_attributes


class TVMCException(BatonError):
    """Invalid request to `tvmc`."""


class TVMCImportError(TVMCException):
    """A model needs a package that is not installed."""


_MEMBERS = {
    "TVMCModel": ".model",
    "TVMCPackage": ".model",
    "TVMCResult": ".model",
    **{
        name: f".{name}"
        for name in (
            *("autotuner", "compiler", "composite_target", "config_options", "frontends", "main"),
            *("model", "pass_config", "pass_list", "registry", "result_utils", "runner"),
            *("shape_parser", "target", "tracker", "transform"),
        )
    },
}
_FUNCTIONS = {
    "compile": ("compiler", "compile_model"),
    "load": ("frontends", "load_model"),
    "run": ("runner", "run_module"),
    "tune": ("autotuner", "tune_model"),
}

_lazy = lazy_attributes(__name__, _MEMBERS)


def __getattr__(name: str) -> object:
    if name in _FUNCTIONS:
        module, function = _FUNCTIONS[name]
        return getattr(_lazy(module), function)
    return _lazy(name)
