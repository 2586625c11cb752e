"""Allow-list of what a schedule trace may do: a tuning record is data, and can't run code.

TVM applies any instruction that a trace names, with any annotation. Some change results
(`UnsafeSetDType`), some compile text of the record into the library (`pragma_import_llvm`).
Only the instructions, annotations and values that schedules are made of pass here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ...errors import RecordError
from ..untrusted_json import as_record_errors

INSTRUCTIONS = frozenset(
    [
        "GetSBlock", "GetLoops", "GetChildBlocks", "GetProducers", "GetConsumers",
        "GetOutputBlocks", "EnterPostproc", "SampleCategorical", "SamplePerfectTile",
        "SamplePartitionedTile", "SampleComputeLocation", "Fuse", "Split", "LoopPartition",
        "Merge", "Reorder", "ReorderBlockIterVar", "AddUnitLoop", "Parallel", "Vectorize",
        "Bind", "Unroll", "CacheRead", "CacheWrite", "ReindexCacheRead", "ReindexCacheWrite",
        "CacheInplace", "CacheIndex", "Reindex", "ReadAt", "WriteAt", "ComputeAt",
        "ReverseComputeAt", "ComputeInline", "ReverseComputeInline", "DecomposeReduction",
        "RFactor", "StorageAlign", "SetScope", "Blockize", "Tensorize", "Annotate",
        "Unannotate", "DecomposePadding", "PadEinsum", "RollingBuffer",
    ]
)  # fmt: skip
ANNOTATIONS = frozenset(
    [
        "pragma_auto_unroll_max_step", "pragma_loop_partition_hint", "pragma_unroll_explicit",
        "meta_schedule.auto_tensorize", "meta_schedule.auto_tensorize_init",
        "meta_schedule.cache_type", "meta_schedule.cooperative_fetch",
        "meta_schedule.inline_post_processing", "meta_schedule.layout_free_buffers",
        "meta_schedule.layout_rewrite_preproc", "meta_schedule.parallel",
        "meta_schedule.random_compute_producer", "meta_schedule.tensor_core_enabled",
        "meta_schedule.thread_extent_high_inclusive",
        "meta_schedule.thread_extent_low_inclusive", "meta_schedule.tiling_structure",
        "meta_schedule.unroll_explicit", "meta_schedule.unroll_implicit",
        "meta_schedule.vectorize", "meta_schedule.vdevice", "meta_schedule.warp_execution",
    ]
)  # fmt: skip
_SCOPES = re.compile(
    r"(global|local|shared|shared\.dyn|warp|wmma\.\w+|m16n8k8\.\w+|metal\.simdgroup)?"
)
_THREADS = re.compile(r"(blockIdx|threadIdx|vthread)(\.[xyz])?")
_TEXT = re.compile(r'"?[\w.:]{0,80}"?')

MAX_INSTRUCTIONS = 5000
MAX_NUMBER = 2**31 - 1
MAX_ANNOTATION = 2**20
MAX_ALIGNMENT = 1024
MAX_LANES = 1024
MAX_UNROLLED = 2**14
"""Statements that nested unrolled loops may make of one."""


@as_record_errors
def check_trace(trace: Any) -> None:
    """Reject what is not a trace of allowed steps: RecordError names instruction and reason."""
    instructions, decisions = trace
    if not isinstance(instructions, list) or not isinstance(decisions, list):
        raise TypeError("trace is not two lists")
    if len(instructions) > MAX_INSTRUCTIONS:
        raise RecordError(f"a trace has {len(instructions)} instructions, over {MAX_INSTRUCTIONS}")
    for instruction in instructions:
        _check_instruction(instruction)
    for decision in decisions:
        index, value = decision
        if type(index) is not int or not 0 <= index < len(instructions):
            raise ValueError(f"a decision of the trace is on instruction {str(index)[:40]}")
        tiles = value if isinstance(value, list) else [1]
        if not all(type(tile) is int and 0 < tile <= MAX_NUMBER for tile in tiles) or (
            type(value) not in (int, list) or not instructions[index][0].startswith("Sample")
        ):
            raise ValueError(f"the decision on instruction {index} of the trace is not one")


def _check_instruction(instruction: Any) -> None:
    kind, inputs, attributes, outputs = instruction
    if not isinstance(kind, str) or not all(
        isinstance(part, list) for part in (instruction, inputs, attributes, outputs)
    ):
        raise TypeError(f"instruction {str(kind)[:40]!r} of the trace is malformed")
    if kind not in INSTRUCTIONS:
        raise RecordError(f"the instruction {kind[:40]!r} is not allowed in a tuning record")
    # The factors of a loop that is split may be open, all else is there.
    needed = inputs[:1] if kind in ("Split", "LoopPartition") else inputs
    if not all(isinstance(name, str) for name in outputs) or None in [*attributes, *needed]:
        raise TypeError(f"instruction {kind[:40]!r} of the trace has null where it can't be")
    limit = MAX_ANNOTATION if kind == "Annotate" else MAX_NUMBER
    for value in _leaves([inputs, attributes]):
        if isinstance(value, str):
            fits = _TEXT.fullmatch(value) is not None
        else:
            fits = value is None or (isinstance(value, (int, float)) and abs(value) <= limit)
        if not fits:
            raise RecordError(f"{kind} has the value {str(value)[:60]!r}, which is not allowed")
    if kind in ("Annotate", "Unannotate") and attributes[0] not in ANNOTATIONS:
        raise RecordError(f"the annotation {str(attributes[0])[:60]!r} is not allowed")
    if kind in ("CacheRead", "CacheWrite", "SetScope", "ReadAt", "WriteAt"):
        scope = attributes[-1]
        if not isinstance(scope, str) or not _SCOPES.fullmatch(scope):
            raise RecordError(f"{kind} has the storage scope {str(scope)[:40]!r}")
    if kind == "Bind" and not _THREADS.fullmatch(str(attributes[0])):
        raise RecordError(f"Bind has the thread {str(attributes[0])[:40]!r}")
    if kind == "StorageAlign" and max(map(abs, attributes)) > MAX_ALIGNMENT:
        raise RecordError(f"StorageAlign has {attributes}; at most {MAX_ALIGNMENT} is allowed")


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for each in value:
            yield from _leaves(each)
    elif isinstance(value, dict):
        raise RecordError("a trace holds a JSON object where a value is expected")
    else:
        yield value


def check_loops(body: Any) -> None:
    """Reject loops that would take the compiler hours: huge vectors and unrolled nests.

    Raises RecordError: a vectorized loop is over `MAX_LANES`, or unrolled loops around one
    statement are over `MAX_UNROLLED`.
    """
    from tvm import tirx
    from tvm.tirx import ForKind

    def check(statement: Any, unrolled: int) -> None:
        if isinstance(statement, tirx.For):
            extent = int(statement.extent) if isinstance(statement.extent, tirx.IntImm) else 1
            if statement.kind == ForKind.VECTORIZED and extent > MAX_LANES:
                raise RecordError(f"the trace vectorizes {extent} steps, over {MAX_LANES}")
            if statement.kind == ForKind.UNROLLED:
                unrolled *= extent
            if unrolled > MAX_UNROLLED:
                raise RecordError(f"the trace unrolls {unrolled} steps, over {MAX_UNROLLED}")
        for part in parts_of(statement):
            check(part, unrolled)

    def parts_of(statement: Any) -> Iterator[Any]:
        if isinstance(statement, tirx.SeqStmt):
            yield from statement.seq
        for name in ("body", "block", "init", "then_case", "else_case"):
            part = getattr(statement, name, None)
            if part is not None:
                yield part

    check(body, 1)
