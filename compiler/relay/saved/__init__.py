"""Read files saved by TVM: modules of `tvm.ir.save_json`, parameters of `relay.save_param_dict`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ...errors import SavedModuleError
from ...support.lazy_import import lazy_attributes
from ...tvm_workarounds.validate_json import check_document, check_no_code

if TYPE_CHECKING:
    import tvm

__getattr__ = lazy_attributes(
    __name__, {"save_param_dict": ".params", "load_param_dict": ".params", "read_params": ".params"}
)


def load_json(
    json_str: str, source_name: str = "json", allow_code: bool = False
) -> tvm.IRModule | Any:
    """Load the JSON of `tvm.ir.save_json` from TVM 0.6 to 0.18 or the installed TVM.

    Parameters
    ----------
    json_str : str
        The JSON document.
    source_name : str
        Name used in errors.
    allow_code : bool
        Allow kernels, external functions and calls of functions by name. They run with the
        rights of the process: only set this for files that you trust.

    Returns
    -------
    tvm.IRModule for a saved module or function, a dict of arrays for a saved map of tensors.

    Raises
    ------
    SavedModuleError
        The document is damaged or of another kind, or contains code without `allow_code`.
    RelayError
        The program cannot be represented in compiled code.
    """
    if '"root_index"' in json_str:
        return _of_this_tvm(json_str, source_name, allow_code)
    from ..text.to_relax import to_relax
    from .module import read_module

    try:
        return to_relax(read_module(json_str, source_name))
    except UnicodeEncodeError as error:  # JSON can escape unpaired surrogates
        raise SavedModuleError(f"{source_name}: {error.object!r} is not text") from error


def _of_this_tvm(text: str, source: str, allow_code: bool) -> Any:
    import tvm

    from .types import check_types

    try:
        document = json.loads(text)
        check_document(document)
        if not allow_code:
            _check_no_code(document, source)
        register_operators(document)
        made = tvm.ir.load_json(text)
        if isinstance(made, tvm.IRModule):
            check_types(made)
    except SavedModuleError:
        raise
    except Exception as error:
        # Some kinds of damage are only found by TVM's reader.
        reason = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        raise SavedModuleError(f"{source}: TVM can't read the document: {reason}") from error
    if not isinstance(made, (tvm.ir.IRModule, tvm.ir.Expr, tvm.ir.Map)):
        raise SavedModuleError(f"{source}: the document holds {type(made).__name__}, not a module")
    return made


def _check_no_code(document: Any, source: str) -> None:
    try:
        check_no_code(document)
    except ValueError as error:
        raise SavedModuleError(
            f"{source}: {error}, so that building it could run code that the file brings; if you "
            "trust its writer, load it with allow_code=True (baton compile --trust)"
        ) from None


def register_operators(document: Any) -> None:
    """Register, before reading, the operators that a document of the installed TVM calls."""
    from .. import dialect
    from ..op import registry

    nodes = document.get("nodes") if isinstance(document, dict) else None
    for node in nodes if isinstance(nodes, list) else ():
        name = node.get("data") if isinstance(node, dict) and node.get("type") == "ir.Op" else None
        if isinstance(name, str) and registry.is_available(name):
            dialect.operator(name)
