"""What old TVM saved: modules by `tvm.ir.save_json`, parameters by `relay.save_param_dict`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...lazy import lazy_attributes

if TYPE_CHECKING:
    import tvm

__getattr__ = lazy_attributes(
    __name__, {"save_param_dict": ".params", "load_param_dict": ".params", "read_params": ".params"}
)


def load_json(json_str: str, source_name: str = "json") -> tvm.IRModule | Any:
    """Read what `tvm.ir.save_json` of TVM 0.6 to 0.18 wrote.

    Parameters
    ----------
    json_str : str
        The JSON document.
    source_name : str
        What errors call it.

    Returns
    -------
    tvm.IRModule for a saved module or function, a dict of arrays for a saved map of tensors.

    Raises
    ------
    SavedModuleError
        The document is damaged or holds something else.
    RelayError
        The program has no form in a compiled module.
    """
    from ..text.to_relax import to_relax
    from .module import read_module

    return to_relax(read_module(json_str, source_name))
