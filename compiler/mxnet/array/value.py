"""Values of arrays: present in a tensor, or the outputs of recorded operators.

An array refers to a value. Operators create values and never change one. A recorded operator
refers to its inputs, so values form a graph. Evaluating a value computes everything it depends on.
Values that no array refers to are freed.
"""

from __future__ import annotations

import itertools
import os
import sys
import weakref
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from compiler.errors import DeferredComputeError, OutOfScopeError

if TYPE_CHECKING:
    from ..device import Device

Shape = tuple[int, ...]
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_NUMBERS = itertools.count()


@dataclass(eq=False)
class Variable:
    """A symbol's variable that values are bound to."""

    name: str
    attrs: dict[str, str] = field(default_factory=dict)
    symbol: Any = None  # what the user bound, compared by identity


@dataclass(eq=False)
class Trace:
    """A recording in progress in this thread."""

    # the block whose `forward` is traced; "" for `deferred_compute`, in which values may be asked
    # for
    block: str = ""
    # whether arrays from outside may be read; they become variables `const0`, `const1`, ...
    allow_constants: bool = False
    constants: dict[str, Value] = field(default_factory=dict)  # the arrays taken from outside
    # call site at which the traced code first read an array's shape; "" if it read none. Such a
    # recording may only be valid for the shapes of these inputs.
    shape_read: str = ""
    # call site of the first operator whose output shape depends on values; "" without one
    dynamic: str = ""

    def capture(self, value: Value, op: str) -> None:
        """Add a value without history to the recording as a constant, or raise."""
        if not self.allow_constants:
            where = f"the forward of {self.block}" if self.block else "deferred compute"
            raise DeferredComputeError(
                f"{call_site()}: operator {op} in {where} reads an array that was made outside, "
                "or of data on the host; pass it as an argument, make it a Parameter or Constant, "
                "or bind it with set_variable"
            )
        name = f"const{len(self.constants)}"
        self.constants[name] = value
        value.variable = Variable(name, {"__shape__": str(value.shape)})


_TRACE: ContextVar[Trace | None] = ContextVar("trace", default=None)


def current_trace() -> Trace | None:
    """Return the recording in progress in this thread."""
    return _TRACE.get()


def note_shape_read(value: Value, rank_only: bool = False) -> None:
    """Record a shape read; DeferredComputeError if a block is traced and it depends on values."""
    trace = _TRACE.get()
    if trace is None:
        return
    if value.dynamic and trace.block and not rank_only:
        raise DeferredComputeError(
            f"{call_site()}: the forward of {trace.block} depends on the shape of an array that "
            f"only values decide ({trace.dynamic}); a trace would hold for these values alone. Use "
            "operators that do not need it, such as reshape with -1"
        )
    if not trace.shape_read:
        caller = sys._getframe(2)
        if not caller.f_globals.get("__name__", "").startswith("compiler."):
            trace.shape_read = call_site()


class Value:
    """One value: its type, and a tensor or the operator that makes it."""

    __slots__ = (
        "__weakref__",
        "device",
        "dtype",
        "dynamic",
        "index",
        "owner",
        "record",
        "shape",
        "tensor",
        "variable",
    )

    def __init__(
        self,
        shape: Shape,
        dtype: str,
        device: Device,
        tensor: Any = None,
        record: Record | None = None,
        index: int = 0,
    ) -> None:
        self.shape = shape
        self.dtype = dtype
        self.device = device
        self.tensor = tensor  # None until it is computed
        self.record = record  # the operator; dropped once an untraced value is computed
        self.index = index  # which output of the operator
        self.variable: Variable | None = None  # the variable that names the value in a symbol
        self.owner: Any = None  # the array that names the value; gone when the user has dropped it
        # whether the shape depends on values, so that a trace must not depend on the shape
        self.dynamic = False
        if record is not None:
            record.outputs.append((index, weakref.ref(self)))

    @property
    def has_history(self) -> bool:
        """Whether the value can appear in a symbol."""
        return self.variable is not None or (self.record is not None and self.record.traced)

    def alias(self) -> Value:
        """Return a copy without its variable."""
        made = Value(self.shape, self.dtype, self.device, self.tensor, self.record, self.index)
        made.dynamic = self.dynamic
        return made


@dataclass(eq=False, slots=True)
class Record:
    op: str  # MXNet's name of it
    attrs: Mapping[str, str]  # as in a symbol file
    inputs: Sequence[Value]
    types: Sequence[tuple[Shape, str]]  # of the outputs
    device: Device  # where it runs
    traced: bool  # whether it belongs to a trace
    subgraphs: Sequence[Any] = ()  # bodies of control flow
    name: str = ""  # of its node in a symbol
    # the values that are still in use
    outputs: list[tuple[int, Any]] = field(default_factory=list, init=False)
    where: str = field(init=False)  # file, line and function that recorded it
    depth: int = field(init=False)  # length of the longest path to a computed value

    def __post_init__(self) -> None:
        self.where = call_site()
        self.name = self.name or (f"node_{next(_NUMBERS)}" if self.traced else "")
        self.depth = 1 + max(
            (v.record.depth for v in self.inputs if v.tensor is None and v.record is not None),
            default=0,
        )

    def values(self) -> list[Value]:
        """Create the values of the outputs."""
        made = [
            Value(shape, dtype, self.device, None, self, index)
            for index, (shape, dtype) in enumerate(self.types)
        ]
        if self.traced and any(value.dynamic for value in self.inputs):
            for value in made:
                value.dynamic = bool(value.shape)
        return made

    def alive(self) -> list[tuple[int, Value]]:
        """List the outputs that are in use, with their indices."""
        found = ((index, reference()) for index, reference in self.outputs)
        return [(index, value) for index, value in found if value is not None]


parameter_epoch = [0]
"""Increases when any parameter changes: one comparison tells cached operators that none has."""


def note_parameter_change() -> None:
    parameter_epoch[0] += 1


def call_site() -> str:
    """Return file, line and function of the innermost caller outside this package."""
    frame: Any = sys._getframe(1)
    # Generated methods of dataclasses have the file name "<string>".
    while frame is not None and frame.f_code.co_filename.startswith((_PACKAGE, "<string>")):
        if frame.f_back is None:
            break
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"


def no_gradients(what: str) -> OutOfScopeError:
    """Make the error for a call that belongs to training."""
    return OutOfScopeError(
        f"{call_site()}: {what}: Baton computes inference only; there are no gradients. Train with "
        "another framework and load the parameters here"
    )
