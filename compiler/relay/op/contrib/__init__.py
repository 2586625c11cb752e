"""`relay.op.contrib`: pattern tables of external compilers, and their registration."""

from typing import Any

from ....errors import UnsupportedRelayOperatorError
from ....support.lazy_import import lazy_attributes
from .register import LIBRARIES

_MISSING = {
    "cmsisnn": "its patterns end in passes that only TVM's CMSIS-NN code generator needs",
    "ethosn": "Arm's support library decides of each operator whether it is taken",
    "ethosu": "its operators were of the removed back end",
    "vitis_ai": "Xilinx's PyXIR decides of each operator whether it is taken",
}

_lazy = lazy_attributes(
    __name__,
    {
        "get_pattern_table": ".register",
        "register_pattern_table": ".register",
        **{name: f".{name}" for name in ("register", "coreml", *LIBRARIES)},
        **{f"partition_for_{name}": f".{name}" for name in LIBRARIES},
    },
)


def __getattr__(name: str) -> Any:
    library = name.removeprefix("partition_for_")
    if library in _MISSING:
        raise UnsupportedRelayOperatorError(
            f"relay.op.contrib.{name} is not supported: {_MISSING[library]}; write a pattern table "
            "for relay.transform.MergeComposite, or a backend for compiler.partition"
        )
    return _lazy(name)
