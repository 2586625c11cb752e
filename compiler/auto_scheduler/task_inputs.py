"""Input values to measure a task with instead of random ones, such as sparse-matrix indices.

task = SearchTask(func="sparse_dense", args=..., task_inputs={"W_indptr": array}, target="llvm")
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tvm.tirx import PrimFunc

from compiler.support.numpy_files import read_npy
from compiler.support.regular_files import os_errors_as

from ..errors import RecordError
from ..measure.candidate import ArgInfo
from ..measure.timing import random_values

DEFAULT = "default"

TASK_INPUT_BUFFER_TABLE: dict[str, dict[str, np.ndarray]] = {}
"""Workload key, or "default", to the inputs of its tasks by name."""


def register_task_input_buffer(
    workload_key: str,
    input_name: str,
    input_data: Any,
    overwrite: bool = False,
    save_to_file: bool = False,
) -> np.ndarray:
    """Keep an input under its name, for tasks of a workload or, under "default", of any.

    Parameters
    ----------
    input_data : array
    overwrite : bool
        Replace one of that name; without it the one that is there stays.
    save_to_file : bool
        Also write "<name>.npy" to the current folder, where `get_task_input_buffer` looks in
        another process.

    Returns
    -------
    The input that is kept.
    """
    array = as_array(input_data)
    table = TASK_INPUT_BUFFER_TABLE.setdefault(workload_key, {})
    if overwrite or input_name not in table:
        table[input_name] = array
        if save_to_file:
            np.save(_file_of(input_name), array, allow_pickle=False)
    return table[input_name]


def get_task_input_buffer(workload_key: str, input_name: str) -> np.ndarray:
    """The input kept under a name for a workload, or for any, or in a file; else RecordError."""
    for key in (workload_key, DEFAULT):
        found = TASK_INPUT_BUFFER_TABLE.get(key, {}).get(input_name)
        if found is not None:
            return found
    path = _file_of(input_name)
    if not path.exists():
        raise RecordError(
            f"task input {input_name!r} of {workload_key!r} is not registered, and there is no "
            f"{path}; give it with task_inputs or register_task_input_buffer"
        )
    with os_errors_as(RecordError, f"task input {input_name!r}: can't read {path}"):
        return read_npy(path)


def as_array(value: Any) -> np.ndarray:
    """An array of numpy's, of one of TVM's or numpy's."""
    return value if isinstance(value, np.ndarray) else value.numpy()


def _file_of(name: str) -> Path:
    if os.path.basename(name) != name:
        raise RecordError(f"task input {name!r}: its name is no file's")
    return Path(f"{name}.npy")


def placed(func: PrimFunc, given: Mapping[str, np.ndarray]) -> dict[int, np.ndarray]:
    """Map inputs to operands by name, or first free ones of their type, or raise RecordError."""
    forms = list(map(ArgInfo.of, func.params[:-1]))
    names = [str(param.name) for param in func.params[:-1]]
    places: dict[int, np.ndarray] = {}
    for name, array in sorted(given.items(), key=lambda item: item[0] not in names):
        form = array.shape, str(array.dtype)
        free = [i for i, each in enumerate(forms) if each == form and i not in places]
        if not free:
            raise RecordError(f"task_inputs: no operand is left for {name!r}, {form}")
        places[next((i for i in free if names[i] == name), free[0])] = array
    return places


def operand_values(func: PrimFunc, places: Mapping[int, np.ndarray]) -> list[np.ndarray] | None:
    """Values of all operands, random ones where none are given; None where none at all are."""
    if not places:
        return None
    operands = list(map(ArgInfo.of, func.params))
    return [places.get(i, value) for i, value in enumerate(random_values(operands))]
