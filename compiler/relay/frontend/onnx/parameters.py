"""The weights of an ONNX model that become parameters, copied while its nodes are converted."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import tvm
from tvm import relax

from compiler.ir.constants import to_tensor


class Parameters(dict[str, tuple[relax.Var, Any]]):
    """Variable and value of each weight by name, for TVM's importer too; reading one waits for it.

    In front of the nodes come the weights, and most of the time of large models goes to copies of
    them, which other threads make. The end of a `with` waits for all.
    """

    def __init__(self) -> None:
        super().__init__()
        self._pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)))

    def __enter__(self) -> Parameters:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def copy_of(self, array: np.ndarray, variable: relax.Var) -> None:
        """Have an array copied, as the value of a variable, whose name it gets."""
        super().__setitem__(variable.name, (variable, self._pool.submit(to_tensor, array)))

    def variables(self) -> list[relax.Var]:
        """In the order in which they came."""
        return [variable for variable, _ in super().values()]

    def __getitem__(self, name: str) -> tuple[relax.Var, tvm.runtime.Tensor]:
        variable, value = super().__getitem__(name)
        return variable, value.result()
