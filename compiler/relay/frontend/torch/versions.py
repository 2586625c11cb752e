"""The versions of PyTorch that imports are tested with, and what their exporter is trusted with."""

from __future__ import annotations

import functools
import logging

import torch

from compiler.support.text_tables import read_table

logger = logging.getLogger("baton.relay")

TESTED = ("2.13", "2.14")

EXPORTED = frozenset(
    name for (names,) in read_table(__file__, "exported.txt") for name in names.split()
)
"""Operators of the namespace aten that the exporter records as they are, at its operator set.

All others are decomposed, see `call.py`, in every version of PyTorch alike.
"""


def is_exported(name: str) -> bool:
    """Whether an operator, "aten::relu_", is recorded as it is; those of other namespaces are."""
    namespace, _, plain = name.partition("::")
    return namespace != "aten" or plain in EXPORTED or plain.removesuffix("_") in EXPORTED


@functools.cache
def warn_unless_tested() -> None:
    """Say once in a process that the installed version is not one that imports are tested with."""
    version = torch.__version__
    if ".".join(version.split(".")[:2]) not in TESTED:
        logger.warning(
            "PyTorch %s is not one of those that from_pytorch is tested with (%s): compare results "
            "with PyTorch's own, and look here first if an operator is refused",
            version,
            ", ".join(TESTED),
        )
