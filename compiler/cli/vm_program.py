"""What a library runs, read from its virtual machine's code: kernels, their operands, memory."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from compiler.errors import LoadError
from compiler.runtime import FactoryModule
from compiler.runtime.debugger.trace import CREATE_VIEW, MOVE_POINTER
from compiler.runtime.metadata import dtype_bits

_CALL_BY_SHAPE = "vm.builtin.call_tir_dyn"
_STRING = re.compile(r'"ErrorContext\(.*?\) "(?=, |$)|"[^"]*"(?=, |$)', re.DOTALL)
_CONSTANT = re.compile(r"shapetuple\[([\d, -]*)\]|\[[^\]]*\]|[^,\[]+(?:\[[^\]]*\])?")
_DAMAGE = (SyntaxError, ValueError, LookupError, AttributeError, TypeError, RecursionError)
_DEEPEST = 20  # functions that call each other; Baton's libraries have two levels


@dataclass
class Tensor:
    """Memory that kernels write and read while a library runs.

    Attributes
    ----------
    storage : int
        Which of `Program.storages` holds it.
    offset : int
        Of its first byte in the storage.
    nbytes : int or None
        None where only running tells.
    first, last : int
        Indices of the first and the last call that has it as an operand or a result; results of the
        library live to the end.
    """

    storage: int
    offset: int
    nbytes: int | None
    first: int = -1
    last: int = -1


@dataclass(frozen=True)
class Call:
    """One call of a kernel.

    Attributes
    ----------
    kernel : str
        Its symbol, as in the build's report.
    inputs : frozenset of int
        Inputs of the library that it reads, weights not counted.
    after : frozenset of int
        Indices of the calls whose results it reads.
    weights : tuple of int
        Weights that it reads, by their indices in the library's metadata.
    """

    kernel: str
    inputs: frozenset[int]
    after: frozenset[int]
    weights: tuple[int, ...] = ()


@dataclass(frozen=True)
class Program:
    """The calls of one inference, in order; of a branch, both sides.

    Attributes
    ----------
    results : list of frozenset of int
        Of each result of the library, the calls that made it.
    storages : list of int or None
        Bytes of each piece of memory; None where only running tells.
    """

    calls: list[Call]
    tensors: list[Tensor]
    results: list[frozenset[int]]
    storages: list[int | None]


def read_program(library: FactoryModule) -> Program:
    """Read a library's program; nothing of it is run.

    Raises
    ------
    LoadError
        The library's code is not as TVM writes it.
    """
    module = library.get_lib()
    try:
        tree = ast.parse(str(module["as_python"]()))
        constants = _constants(str(module["stats"]()))
        return _Reader(tree, constants, len(library.metadata.inputs)).program()
    except _DAMAGE as error:
        raise LoadError(f"can't read the library's program: {error}") from error


def _constants(stats: str) -> list[tuple[int, ...] | str]:
    """The constant pool: shapes, and the texts of everything else."""
    found = re.search(r"Constant pool \(# (\d+)\): \[(.*)\]\n  Globals", stats, re.DOTALL)
    if found is None:
        raise ValueError("it has no constant pool")
    rest, constants = found[2], list[tuple[int, ...] | str]()
    while rest:
        match = _STRING.match(rest) or _CONSTANT.match(rest)
        if match is None:
            raise ValueError(f"the constant {rest[:40]!r} is of no known kind")
        is_shape = match.re is _CONSTANT and match[1] is not None
        constants.append(
            tuple(int(n) for n in match[1].split(",") if n.strip()) if is_shape else match[0]
        )
        rest = rest[match.end() :].removeprefix(", ")
    if len(constants) != int(found[1]):
        raise ValueError(f"it has {found[1]} constants, of which {len(constants)} were found")
    return constants


@dataclass
class _Value:
    """A tensor in a register: what made it, and the memory that it lies in.

    Attributes
    ----------
    inputs, weights : set of int
        The library's inputs or weights that it is, or is a view of.
    writers : set of int
        Calls that wrote it or parts of it.
    writable : bool
        Whether it is memory of the program's own; the first call that has it as an operand writes
        it, unless views of it were written before.
    whole : _Value or None
        What it is a view of.
    is_in_parts : bool
        Whether no call wrote it as a whole: views of it are there to be written.
    """

    inputs: set[int] = field(default_factory=set)
    weights: set[int] = field(default_factory=set)
    writers: set[int] = field(default_factory=set)
    writable: bool = False
    tensor: Tensor | None = None
    whole: _Value | None = None
    is_in_parts: bool = True

    def is_written_by(self, call: int) -> None:
        """Note a call that writes it, and with it what it is a part of."""
        value: _Value | None = self
        while value is not None:
            value.writers.add(call)
            value = value.whole


@dataclass(frozen=True)
class _Storage:
    index: int


class _Reader:
    """Runs the program on `_Value`s instead of tensors."""

    def __init__(self, tree: ast.Module, constants: Sequence[Any], num_inputs: int) -> None:
        self._constants = constants
        self._num_inputs = num_inputs
        self._functions = {
            str(_literal(_call_of(each).args[0])): each
            for each in tree.body
            if isinstance(each, ast.With)
        }
        self._program = Program([], [], [], [])
        self._special: dict[str, Callable[[list[Any]], Any]] = {
            "vm.builtin.alloc_storage": self._storage,
            "vm.builtin.alloc_tensor": self._tensor,
            "vm.builtin.null_value": lambda _: None,
            MOVE_POINTER: lambda _: None,
            CREATE_VIEW: self._view,
            _CALL_BY_SHAPE: lambda args: self._kernel(args[0], args[1:], False),
        }

    def program(self) -> Program:
        main = self._functions["main"]
        weights = range(_num_inputs(main) - self._num_inputs)
        arguments = [[_Value(inputs={index})] for index in range(self._num_inputs)]
        arguments += [[_Value(weights={index})] for index in weights]
        program = self._program
        for value in _values(self._function(main, arguments, 0)):
            program.results.append(frozenset(value.writers))
            if value.tensor is not None:
                value.tensor.last = len(program.calls) - 1
        used = [tensor for tensor in program.tensors if tensor.first >= 0]
        return Program(program.calls, used, program.results, program.storages)

    def _function(self, function: ast.With, arguments: Sequence[Any], depth: int) -> Any:
        if depth > _DEEPEST:
            raise ValueError("its functions call each other without an end")
        registers = dict(enumerate(arguments))
        result = None
        for statement in function.body:
            call = _call_of(statement)
            kind = _method(call)
            if kind == "emit_ret":
                result = self._argument(call.args[0], registers)
            if kind != "emit_call":
                continue
            name = str(_literal(call.args[0]))
            given = {each.arg: each.value for each in call.keywords}
            listed = given["args"]
            operands = listed.elts if isinstance(listed, ast.List) else []
            values = [self._argument(each, registers) for each in operands]
            returned = self._call(name, values, "dst" in given, depth)
            if "dst" in given:
                registers[_register(given["dst"])] = returned
        return result

    def _argument(self, node: ast.expr, registers: dict[int, Any]) -> Any:
        kind = _method(node)
        if kind == "r":
            return registers.get(_register(node))
        value = _literal(node.args[0])  # type: ignore[attr-defined]
        return self._constants[value] if kind == "c" else value

    def _call(self, name: str, values: list[Any], returns: bool, depth: int) -> Any:
        if name in self._special:
            return self._special[name](values)
        if name in self._functions:
            return self._function(self._functions[name], values, depth + 1)
        if name.startswith("vm."):  # a shape, a tuple, or a view of what it is given
            return list(_values(values))
        return self._kernel(name, values, returns)

    def _storage(self, values: list[Any]) -> _Storage:
        sizes = [each for each in values if isinstance(each, tuple)]
        self._program.storages.append(math.prod(sizes[0]) if sizes else None)
        return _Storage(len(self._program.storages) - 1)

    def _tensor(self, values: list[Any]) -> list[_Value]:
        storage, offset, shape, dtype = values[:4]
        tensor = None
        if isinstance(storage, _Storage):
            nbytes = None
            if isinstance(shape, tuple):
                nbytes = (math.prod(shape) * dtype_bits(str(dtype)) + 7) // 8
            tensor = Tensor(storage.index, offset if isinstance(offset, int) else 0, nbytes)
            self._program.tensors.append(tensor)
        return [_Value(writable=True, tensor=tensor)]

    def _view(self, values: list[Any]) -> list[_Value]:
        (whole, *_) = _values(values[:1])
        writers = set() if whole.writable and whole.is_in_parts else set(whole.writers)
        return [_Value(whole.inputs, whole.weights, writers, whole.writable, whole.tensor, whole)]

    def _kernel(self, name: str, values: list[Any], returns: bool) -> list[_Value]:
        index = len(self._program.calls)
        operands = list(_values(values))
        if not operands and not returns:  # computes extents
            return []
        results = {id(each) for each in operands if each.writable and not each.writers}
        if operands and not returns:
            results.add(id(operands[-1]))
        read = [each for each in operands if id(each) not in results]
        for value in operands:
            if value.tensor is not None:
                value.tensor.first = index if value.tensor.first < 0 else value.tensor.first
                value.tensor.last = index
        inputs = frozenset[int]().union(*(each.inputs for each in read))
        after = frozenset[int]().union(*(each.writers for each in read))
        weights = tuple(sorted(set[int]().union(*(each.weights for each in read))))
        self._program.calls.append(Call(str(name), inputs, after, weights))
        for value in operands:
            if id(value) in results:
                value.is_written_by(index)
                value.is_in_parts = False
        return [_Value(writers={index})]


def _values(value: Any) -> Iterator[_Value]:
    """The tensors of a register, or of a tuple in one."""
    if isinstance(value, _Value):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _values(each)


def _call_of(statement: ast.stmt) -> ast.Call:
    node: Any = statement
    call = node.items[0].context_expr if isinstance(node, ast.With) else node.value
    if not isinstance(call, ast.Call):
        raise ValueError(f"line {statement.lineno} is not a call")
    return call


def _method(node: ast.expr) -> str:
    """ "emit_call" of `ib.emit_call(...)`."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        raise ValueError(f"line {node.lineno} is not a method's call")
    return node.func.attr


def _num_inputs(function: ast.With) -> int:
    (number,) = (each.value for each in _call_of(function).keywords if each.arg == "num_inputs")
    return int(_literal(number))


def _register(node: ast.expr) -> int:
    """Number of a register; the virtual machine itself has -1."""
    number: ast.expr = node.args[0]  # type: ignore[attr-defined]
    return -1 if isinstance(number, ast.Name) else int(_literal(number))


def _literal(node: ast.expr) -> Any:
    return ast.literal_eval(node)
