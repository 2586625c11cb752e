"""Kernels scheduled by records of TVM's old auto_scheduler: selected, validated, and installed.

Such a record may require another form of the kernel's compute than the module's operators have,
with packed weights. So the function that holds the kernel's operators gets a new body:

    fused(x):  conv2d(x, w) -> add(b) -> relu
    fused(x):  replayed_kernel(x, packed w, b)          w is packed at build time
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import tvm
from tvm import relax
from tvm.target import Target

from schedules.cuda import violation
from schedules.strategy import DIRECT

from ...precision import WINOGRAD
from ...primfuncs import fusion_pattern
from ...primfuncs.kernel_operators import OPERATORS
from ...runtime.cpu import missing_features
from ...target import cpu_features
from ...target.config import config_of_object
from ...target.cpu import system_triple
from ...tvm_workarounds.block_builder import BlockBuilder
from ...tvm_workarounds.index_guard import guard_indices
from ..offloaded_functions import new_global_var
from .extract import UnscheduledKernel, kernel_calls, plain_function
from .schedule import ALGORITHM, SCHEDULED_BY
from .schedule_source import ScheduleSource
from .weight_packing import pack

if TYPE_CHECKING:
    from ...records.ansor.match import Match
    from ..validate.validator import Checker, ValidationJob

logger = logging.getLogger("baton.lowering")


class ReplayedKernels:
    """Finds the record for each distinct kernel, once; `checker` validates on this machine's CPU.

    `unchecked`: by identity of the match, what is to be asked when its kernel is compiled.
    """

    def __init__(self, source: ScheduleSource, checker: Checker) -> None:
        self.source = source
        self.checker = checker
        self.notes: list[str] = []
        self.unchecked: dict[int, ValidationJob] = {}
        self._found: dict[tuple[str, frozenset[int], str], Match | None] = {}
        self._told_blocked = False

    def find(self, kernel: UnscheduledKernel, key: str, target: Target) -> Match | None:
        """Replay the best record that fits the kernel and computes correct results.

        A kernel without a verdict is validated once it is compiled.
        """
        place = (key, kernel.constants, str(target))
        if place not in self._found:
            self._found[place] = self._search(kernel, target)
        return self._found[place]

    def _search(self, kernel: UnscheduledKernel, target: Target) -> Match | None:
        for match in self._matches(kernel, target):
            name = f"{' '.join(kernel.operators)}: {match.record.source.partition(':')[2]}"
            reason = self._fault(kernel, match, target)
            if not reason:
                self.notes += [f"{name}: {note}" for note in match.notes]
                return match
            self.source.offered.add(match.record.source)
            self.source.skipped[match.record.source, b""] = reason
            logger.warning("%s: %s; the record is not used", name, reason)
            if match.algorithm != DIRECT:
                self.notes.append(f"{name}: {reason}")
        self._note_blocked(kernel, target)
        return None

    def _note_blocked(self, kernel: UnscheduledKernel, target: Target) -> None:
        """Log that a convolution's record in a log is for blocked channels."""
        from ...records.ansor.blocked_keys import blocked_layout

        if "nn.conv2d" not in kernel.operators or not self.source.has_ansor_records:
            return
        layout = blocked_layout(kernel.func, target, self.source.record_contexts)
        if layout is None:
            return
        note = (
            f"{' '.join(kernel.operators)}: its record is for {layout}, as TVM laid out NCHW "
            "networks; builds take records of NCHW and NHWC convolutions"
        )
        self.notes.append(note)
        if not self._told_blocked:
            self._told_blocked = True
            logger.warning("%s", note)

    def _matches(self, kernel: UnscheduledKernel, target: Target) -> Iterator[Match]:
        """All matches of a kernel; none for a kernel that the search does not support."""
        from ...records.ansor.match import matches

        try:
            yield from matches(kernel.func, kernel.constants, target, self.source.record_contexts)
        except Exception as error:  # a log must not break the build of an unsupported kernel
            logger.warning("%s: no record is looked for: %s", " ".join(kernel.operators), error)

    def _fault(self, kernel: UnscheduledKernel, match: Match, target: Target) -> str:
        """Why the replayed kernel can't be used; "" if it can."""
        from ..validate.validator import ValidationJob

        results = len(kernel.func.params) - len(match.operands)
        if results < 1:
            return "the kernel has operands that the record's compute does not read"
        if (
            match.algorithm != DIRECT
            and WINOGRAD in tvm.transform.PassContext.current().disabled_pass
        ):
            return f"it is {match.algorithm}, and {WINOGRAD} is disabled"
        kind = str(target.kind.name)
        if kind == "cuda":
            beyond = violation(guard_indices(match.func), target)
            if beyond is not None:
                return f"no GPU runs it: {beyond}"
        if kind != "llvm" and not tvm.device(kind).exist:
            return ""  # this machine can't run it; code generation checks the rest
        config = {k: v for k, v in config_of_object(target).items() if k != "host"}
        ours = config.get("mtriple") in (None, system_triple())
        runs_here = kind != "llvm" or (ours and not missing_features(cpu_features(target)))
        if not runs_here:  # validate the same function compiled for this machine's CPU
            config = {"kind": kind}
        scheduled = guard_indices(match.func)
        question = ValidationJob(kernel.func, scheduled, match.operands, results, config)
        known = self.checker.known(question)
        if known is None and kind == "llvm" and runs_here:
            self.checker.begin(question)
            self.unchecked[id(match)] = question
            return ""
        return (known or self.checker.check(question)).reason


def install(
    mod: tvm.IRModule,
    name: str,
    match: Match,
    operators: Sequence[str],
    target: Target,
    made: dict[int, tuple[Match, Any]],
) -> tvm.IRModule | None:
    """Let function `name`, which holds the operators of one kernel, call the replayed one.

    `made`: kernels that the module has already, by identity of the match; a new one is added.
    Returns None, to keep the module, if the function does not consist of that kernel alone.
    """
    old = mod[name]
    alone = tvm.IRModule({name: old.with_attr("global_symbol", name)})  # fusion drops others
    plain = plain_function(alone, name, target)[name]
    calls = kernel_calls(plain)
    if len(calls) != 1:
        return None
    operands = calls[0][1]
    functions = dict(mod.functions_items())
    if id(match) not in made:
        kernel = match.func.without_attr("global_symbol").with_attrs({
            fusion_pattern.ATTRIBUTE: fusion_pattern.OPAQUE,
            OPERATORS: " ".join(operators),
            SCHEDULED_BY: match.record.source,
            ALGORITHM: match.algorithm,
        })  # fmt: skip
        made[id(match)] = (match, _new_variable(mod, kernel, "_".join(operators)))
        functions[made[id(match)][1]] = kernel
    builder = BlockBuilder()
    with builder.function(name, list(plain.params), attrs=dict(old.attrs), private=True):
        with builder.dataflow():
            args = [
                pack(builder, operands[index], packing.apply) for index, packing in match.operands
            ]
            out = builder.emit_output(relax.call_tir(made[id(match)][1], args, out_ty=plain.ret_ty))
        builder.emit_func_output(out)
    functions[mod.get_global_var(name)] = builder.get()[name]
    return tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def _new_variable(mod: tvm.IRModule, kernel: Any, operators: str) -> Any:
    taken = {gvar.name_hint for gvar in mod.get_global_vars()}
    name, number = f"replayed_{operators}"[:80], 0
    while f"{name}{number or ''}" in taken:
        number += 1
    return new_global_var(f"{name}{number or ''}", kernel.ty)
