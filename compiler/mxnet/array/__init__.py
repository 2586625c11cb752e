"""Arrays that are computed lazily, the operators on them, and the traces that record those."""

from . import methods  # noqa: F401  (gives them to `ndarray`)
