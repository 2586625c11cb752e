"""External compilers before a target of `tvmc`."""

from __future__ import annotations

from typing import Any

from . import TVMCException

_LIBRARIES = {
    "compute-library": "arm_compute_lib",
    **{name: name for name in ("bnns", "clml", "cublas", "cudnn", "cutlass", "dnnl", "tensorrt")},
}
GONE = ("cmsis-nn", "ethos-n", "ethos-u", "mrvl", "vitis-ai")
"""External compilers without a back end today."""


def get_codegen_names() -> list[str]:
    """Names of external compilers that may precede a target."""
    return sorted(_LIBRARIES)


def get_codegen_by_target(name: str) -> dict[str, Any]:
    """Entry of an external compiler; `pass_pipeline` is called with (mod, params, **options).

    Raises TVMCException: the compiler is gone, or none has that name.
    """
    if name in GONE:
        raise TVMCException(f"target {name!r}: no such backend is left")
    if name not in _LIBRARIES:
        known = ", ".join(get_codegen_names())
        raise TVMCException(f"target {name!r} is neither a TVM target nor one of {known}")
    from compiler.relay.op import contrib

    pipeline = getattr(contrib, f"partition_for_{_LIBRARIES[name]}")
    return {"config_key": None, "pass_pipeline": pipeline}
