"""TE schedules: loops and places of tensor expressions, lowered to TIR.

    s = te.create_schedule(c.op)
    xo, xi = s[c].split(c.op.axis[0], factor=32)
    s[c].vectorize(xi)
    mod = te.lower(s, [a, b, c])

TVM removed them in 0.20; `compiler.legacy` puts them back under `tvm.te`, `tvm.lower` and
`tvm.build`, for scripts that are older than that.
"""

from __future__ import annotations

from ...support.lazy_import import lazy_attributes

_MEMBERS = {
    "AXIS_SEPARATOR": ".relations",
    "Schedule": ".schedule",
    "Stage": ".stage",
    "TensorIntrin": ".intrin",
    "build": ".driver",
    "compute": ".intrin",
    "create_schedule": ".schedule",
    "decl_tensor_intrin": ".intrin",
    "gradient": ".derivatives",
    "hybrid": ".hybrid",
    "infer_bound": ".schedule_ops",
    "loops_of": ".dataflow",
    "lower": ".driver",
    "schedule": ".schedule",
    "schedule_to_function": ".lowering",
    "sparse_dense": ".sparse",
}

__all__ = sorted(_MEMBERS)

__getattr__ = lazy_attributes(__name__, _MEMBERS)
