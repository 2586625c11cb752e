"""Networks that are known by name; `vision` has those for images."""

from ....support.lazy_import import lazy_attributes

__getattr__ = lazy_attributes(__name__, {"vision": ".vision"})
