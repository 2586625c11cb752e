"""Merge a kernel's argument checks, which made up most of its object code.

TVM's entry of a kernel compares each property of each argument on its own, and each comparison has
its own error message, some 15 for a tensor of rank 4:

    assert type of x;  assert x;  assert x.ndim == 4;  assert x.dtype == ..;  assert x.device == ..
    assert x.shape[0] == 1;  assert x.shape[1] == 64;  ..;  assert x.byte_offset == 0

The pass keeps every comparison and merges those that may be evaluated together:

    assert type of x and x                              x points to a tensor
    assert x.ndim == 4 and x.dtype == .. and ..         fields of that tensor
           and x.data % 64 == 0
    assert x.shape[0] == 1 and x.shape[1] == 64 ..      all extents
    if x.strides: assert x.strides ..

TIR evaluates both sides of a conjunction, so each line may only read what the lines above allow.
TVM does not check data alignment, although its CPU code uses aligned vector loads: such a load from
unaligned data ends the process.

Arguments known to be valid (`elide_argument_checks.py`) are not compared. Only the device of one of
them is, because it depends on the user of the library; all of them are on the same device.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Op, StringImm
from tvm.tirx.stmt import AssertStmt, AttrStmt, Bind, IfThenElse, SeqStmt

from ...primfuncs.query import with_parts
from ...runtime.metadata import ALIGNMENT
from ..codegen.elide_argument_checks import INTERNAL_TENSORS

_PACKED_PARAMS = 4  # self, arguments, their number, result
_STRUCT_GET = Op.get("tirx.tvm_struct_get")
_BINARY = frozenset({tirx.And, tirx.Or, tirx.EQ, tirx.GE})
_BODY = "compute_scope"  # attribute of the statement after all checks
_WHEN = " when calling"

# Fields as TVM's intrinsic functions count them (TVMStructFieldKind in builtin.h).
_DATA, _SHAPE, _STRIDES, _DEVICE_TYPE, _TYPE_INDEX, _VALUE, _ELEMENT = 1, 2, 3, 10, 13, 15, 17
_TYPE_CODE, _UINT, _BFLOAT = 5, 1, 4
_FIELDS = frozenset({1, 4, 5, 6, 7, 8, 9, 10})  # of a DLTensor, except for pointers to arrays

_CPU_KINDS = frozenset({"llvm", "c"})
_IS_TENSOR = "a tensor"
_FIELDS_FIT = (
    "a tensor of that number of dimensions and dtype, on the kernel's device, with data that "
    f"begin at a multiple of {ALIGNMENT} bytes, and without a byte offset"
)
_SHAPE_FITS = "a tensor of that shape"

BFLOAT16_BITS = "baton.takes_bfloat16_bits"
"""Attribute of a module whose bfloat16 arguments may be uint16, as TVM stored them up to 0.18."""

_What = tuple[str, int]  # category of a comparison, and the argument's number


@tvm.tirx.transform.prim_func_pass(opt_level=0, name="JoinArgumentChecks")
def join_argument_checks(func: tirx.PrimFunc, mod: tvm.IRModule, _: Any) -> tirx.PrimFunc:
    """The pass, on functions with a packed entry."""
    if len(func.params) != _PACKED_PARAMS or "calling_conv" not in (func.attrs or {}):
        return func
    entry = _Entry(func.params[1], aligned=func.attrs["target"].kind.name in _CPU_KINDS)
    entry.read(func.body)
    changes = entry.changes(set(map(int, func.attrs.get(INTERNAL_TENSORS, ()))))
    if mod.attrs and BFLOAT16_BITS in mod.attrs:
        changes = {check: each and _or_uint16(each) for check, each in changes.items()}
    return func.with_body(_changed(func.body, changes)) if changes else func


@dataclass
class _Checks:
    """Comparisons that may be evaluated together."""

    bound: frozenset[Any]  # variables that are bound before the first
    asserts: list[AssertStmt] = field(default_factory=list)


class _Entry:
    """Statements before a kernel's body; `aligned`: whether its code assumes aligned tensors."""

    def __init__(self, arguments: Any, aligned: bool) -> None:
        self._arguments = arguments
        self._aligned = aligned
        self._bound: set[Any] = set()
        # By variable: the argument of which it is the type, the tensor, the shape or the strides
        self._type_of: dict[Any, int] = {}
        self._tensor_of: dict[Any, int] = {}
        self._shape_of: dict[Any, int] = {}
        self._strides_of: dict[Any, int] = {}
        self._checks: dict[_What, _Checks] = {}
        self._of_strides: dict[int, IfThenElse] = {}
        self._of_device: dict[int, AssertStmt] = {}

    def read(self, statement: Any) -> None:
        pending = [statement]  # not recursive: many arguments would exceed Python's limit
        while pending:
            statement = pending.pop()
            kind = type(statement)
            if kind is SeqStmt:
                pending += reversed(list(statement.seq))
            elif kind is AttrStmt and statement.attr_key != _BODY:
                pending.append(statement.body)
            elif kind is Bind:
                self._bind(statement)
            elif kind is AssertStmt:
                self._note(statement)
            elif kind is IfThenElse and _is_check(statement):
                self._note_strides(statement)

    def _note_strides(self, check: IfThenElse) -> None:
        variables = _Parts(check.condition).variables
        numbers = {self._strides_of.get(each) for each in variables}
        if len(numbers) == 1 and (number := numbers.pop()) is not None:
            self._of_strides[number] = check

    def _bind(self, statement: Bind) -> None:
        self._bound.add(statement.var)
        for base, index, kind in _Parts(statement.value).reads:
            if kind == _TYPE_INDEX and base.same_as(self._arguments):
                self._type_of[statement.var] = index
            elif kind == _VALUE and base.same_as(self._arguments):
                self._tensor_of[statement.var] = index
            elif kind == _SHAPE and base in self._tensor_of:
                self._shape_of[statement.var] = self._tensor_of[base]
            elif kind == _STRIDES and base in self._tensor_of:
                self._strides_of[statement.var] = self._tensor_of[base]

    def _note(self, statement: AssertStmt) -> None:
        parts = _Parts(statement.condition)
        what = self._what(parts.variables, parts.reads) if parts.known else None
        if what is None:
            return
        checks = self._checks.setdefault(what, _Checks(frozenset(self._bound)))
        if what[0] == _IS_TENSOR or parts.variables <= checks.bound:
            checks.asserts.append(statement)
        if [kind for _, _, kind in parts.reads] == [_DEVICE_TYPE]:
            self._of_device[what[1]] = statement

    def _what(self, variables: set[Any], reads: Sequence[tuple[Any, int, int]]) -> _What | None:
        """Category of a condition with these variables and structure reads."""
        for of, what in ((self._type_of, _IS_TENSOR), (self._tensor_of, _IS_TENSOR)):
            if not reads and len(variables) == 1 and (variable := next(iter(variables))) in of:
                return what, of[variable]
        for of, what, kinds in (
            (self._tensor_of, _FIELDS_FIT, _FIELDS),
            (self._shape_of, _SHAPE_FITS, frozenset({_ELEMENT})),
        ):
            numbers = {of.get(base) for base, _, _ in reads}
            number = next(iter(numbers), None)
            if len(numbers) == 1 and number is not None and {k for _, _, k in reads} <= kinds:
                return what, number
        return None

    def changes(self, made: Collection[int]) -> dict[Any, AssertStmt | None]:
        """Replacement of each statement, None to remove it; arguments `made` need no comparison."""
        changes: dict[Any, AssertStmt | None] = {}
        for (what, number), checks in self._checks.items():
            if number in made:
                changes |= dict.fromkeys(checks.asserts)
            elif len(checks.asserts) > 1:
                # After its last type check, an argument can be read as a tensor; its fields are
                # readable after the first field check.
                place = checks.asserts[-1 if what == _IS_TENSOR else 0]
                changes |= dict.fromkeys(checks.asserts)
                more = self._alignment(number) if what == _FIELDS_FIT else []
                changes[place] = _joined(checks.asserts, more, what, number)
        changes |= {check: None for number, check in self._of_strides.items() if number in made}
        if made:
            changes.pop(self._of_device.get(max(made)), None)
        return changes

    def _alignment(self, number: int) -> list[Any]:
        """Check an argument's data address if the kernel relies on alignment."""
        if not self._aligned:
            return []
        tensor = next(var for var, of in self._tensor_of.items() if of == number)
        address = tirx.reinterpret("uint64", tirx.tvm_struct_get(tensor, 0, _DATA, "handle"))
        return [address % tirx.const(ALIGNMENT, "uint64") == tirx.const(0, "uint64")]


def _joined(
    asserts: Sequence[AssertStmt], more: Sequence[Any], what: str, number: int
) -> AssertStmt:
    condition = tirx.all(*(each.condition for each in asserts), *more)
    if what == _IS_TENSOR:  # all of these have one message
        return AssertStmt(condition, asserts[0].error_kind, list(asserts[0].message_parts))
    texts = ("Mismatched argument #", str(number))
    parts = [*map(StringImm, texts), *_signature(asserts[0]), StringImm(f"`,\n  expected {what}")]
    return AssertStmt(condition, StringImm("ValueError"), parts)


def _or_uint16(check: AssertStmt) -> AssertStmt:
    """The assertion, with uint16 accepted where it wants bfloat16."""

    def visit(each: tirx.EQ) -> Any:
        is_code = [kind for _, _, kind in _Parts(each.a).reads] == [_TYPE_CODE]
        if not is_code or int(each.b) != _BFLOAT:
            return each
        return tirx.Or(each, each.a == tirx.const(_UINT, "uint8"))

    condition = tvm_ffi.structural_map(check.condition, (tirx.EQ, visit))
    return AssertStmt(condition, check.error_kind, list(check.message_parts))


def _signature(statement: AssertStmt) -> list[StringImm]:
    """The parts of a message that name the function called."""
    parts = list(statement.message_parts)
    places = [place for place, part in enumerate(parts) if part.value.startswith(_WHEN)]
    return parts[places[0] : places[0] + 2] if places else []


def _changed(statement: Any, changes: Mapping[Any, AssertStmt | None]) -> Any:
    """Change or remove some assertions in the statements before a body."""
    if isinstance(statement, SeqStmt):
        changed = [_changed(each, changes) for each in statement.seq]
        kept = [each for each in changed if each is not None]
        return kept[0] if len(kept) == 1 else SeqStmt(kept)
    if isinstance(statement, AttrStmt) and statement.attr_key != _BODY:
        return with_parts(statement, lambda body: _changed(body, changes))
    is_check = isinstance(statement, (AssertStmt, IfThenElse))
    return changes.get(statement, statement) if is_check else statement


def _is_check(statement: IfThenElse) -> bool:
    """Whether the condition guards nothing but an assertion."""
    inner = statement.then_case
    parts = list(inner.seq) if isinstance(inner, SeqStmt) else [inner]
    return statement.else_case is None and all(isinstance(part, AssertStmt) for part in parts)


class _Parts:
    """Parts of an expression: structure `reads` (variable, index, field); `known` if no others."""

    def __init__(self, expression: Any) -> None:
        self.variables: set[Any] = set()
        self.reads: list[tuple[Any, int, int]] = []
        self.known = True
        self._visit(expression)

    def _visit(self, node: Any) -> None:
        kind = type(node)  # isinstance checks of TVM's classes would take most of the time
        if kind is Call:
            args = list(node.args)
            if node.op.same_as(_STRUCT_GET) and type(args[0]) is tirx.Var:
                self.reads.append((args[0], int(args[1]), int(args[2])))
                self.variables.add(args[0])
                return
            for arg in args:
                self._visit(arg)
        elif kind is tirx.Var:
            self.variables.add(node)
        elif kind in _BINARY:
            self._visit(node.a)
            self._visit(node.b)
        elif kind is tirx.Not:
            self._visit(node.a)
        elif kind is tirx.Cast:
            self._visit(node.value)
        elif kind is not tirx.IntImm:
            self.known = False
