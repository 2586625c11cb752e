"""The oracle's records of TVM 0.18, and the computes they were made for."""

from __future__ import annotations

import functools
import gzip
import json
from pathlib import Path

from tvm.script import from_source
from tvm.script import tirx as T

from compiler.records.ansor.dag import read_dag

ORACLE = Path(__file__).parents[3] / "oracle" / "ansor"


@functools.cache
def loop_nests():
    with gzip.open(ORACLE / "loop_nests.json.gz") as file:
        return json.load(file)


@functools.cache
def dag_of(key):
    """The compute DAG of a workload key of the loop nests."""
    return read_dag(from_source(loop_nests()["computes"][key], {"T": T}))
