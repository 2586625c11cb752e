"""TE schedules: loops and places of tensor expressions, lowered to TIR.

    s = te.create_schedule(c.op)
    xo, xi = s[c].split(c.op.axis[0], factor=32)
    s[c].vectorize(xi)
    mod = te.lower(s, [a, b, c])

TVM removed them in 0.20; `compiler.legacy` puts them back under `tvm.te`, `tvm.lower` and
`tvm.build`, for scripts that are older than that.
"""

from ...support.lazy_import import by_module, lazy_attributes

_MEMBERS = by_module(
    {
        ".relations": "AXIS_SEPARATOR",
        ".schedule": "Schedule create_schedule schedule",
        ".stage": "Stage",
        ".intrin": "TensorIntrin compute decl_tensor_intrin",
        ".driver": "build lower",
        ".derivatives": "gradient",
        ".hybrid": "hybrid",
        ".schedule_ops": "infer_bound",
        ".dataflow": "loops_of",
        ".lowering": "schedule_to_function",
        ".sparse": "sparse_dense",
    }
)

__all__ = sorted(_MEMBERS)

__getattr__ = lazy_attributes(__name__, _MEMBERS)
