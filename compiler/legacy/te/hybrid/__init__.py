"""`te.hybrid`: Python functions of loops that become operations of TE, or run as they are.

    @te.hybrid.script
    def outer_product(a, b):
        c = output_tensor((a.shape[0], b.shape[0]), a.dtype)
        for i in range(a.shape[0]):
            for j in range(b.shape[0]):
                c[i, j] = a[i] * b[j]
        return c

Called with tensors it gives a tensor, whose operation has the loops as `axis`; called with numpy
arrays it computes.
"""

from ....support.lazy_import import lazy_attributes

_MEMBERS = {"HybridModule": ".module", "build": ".module", "script": ".decorator"}

__all__ = sorted(_MEMBERS)

__getattr__ = lazy_attributes(__name__, _MEMBERS)
