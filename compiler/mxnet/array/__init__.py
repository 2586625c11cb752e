"""Arrays that are computed lazily, the operators on them, and the traces that record those."""

from . import methods  # gives `ndarray` its methods
