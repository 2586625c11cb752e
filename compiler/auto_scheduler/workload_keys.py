"""Keys of workloads compared: how much larger one is than another of the same function."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from tvm.topi.utils import get_const_tuple as get_const_tuple

from ..measure.rpc import check_remote as check_remote
from ..measure.rpc import request_remote as request_remote
from ..records.ansor.record import WorkloadKey, distance, flat


def get_func_name(func: Callable[..., Any]) -> str:
    """The name that a workload is registered under by itself."""
    return func.__qualname__


def decode_workload_key(workload_key: str) -> tuple[str, tuple[Any, ...]] | tuple[str, None]:
    """Name and arguments of a key; of one that is not a JSON list, itself and None."""
    try:
        key = json.loads(workload_key)
    except ValueError:
        return workload_key, None
    if not isinstance(key, list) or not key:
        return workload_key, None
    return str(key[0]), tuple(flat(key[1:]))


def calc_workload_dis_factor(
    target_workload_pair: tuple[str, tuple[Any, ...] | None],
    workload_pair: tuple[str, tuple[Any, ...] | None],
) -> float:
    """How many times larger the first decoded key is; infinite if the second does not divide it."""
    (name, args), (other, others) = target_workload_pair, workload_pair
    if args is None or others is None:
        return 1.0 if target_workload_pair == workload_pair else math.inf
    return distance(WorkloadKey(name, args), WorkloadKey(other, others))
