"""PyTorch programs run operator by operator, so that an export records their operators alone.

What a program decides by shapes and constants (its `if`s and loops over extents, list and
integer arithmetic) happens in Python while it is replayed and leaves no trace. A decision by the
inputs' values is refused (`data_dependence`).
"""

from __future__ import annotations

import collections
import contextlib
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree

from compiler.errors import UnsupportedOperatorError

from . import data_dependence
from .call import Caller
from .extents import arithmetic

Environment = dict[str, Any]


class Replay(torch.nn.Module):
    """A module with the weights of `program`, whose own `forward` is not called, under their names.

    `run` computes results from the structured arguments; `forward` takes the leaves of `structure`.
    `names` are those of the last results, by their keys: "scores", "hidden_0", "output0".
    """

    PREFIX = "program."

    def __init__(
        self, program: torch.nn.Module, run: Callable[..., Any], structure: _pytree.TreeSpec
    ) -> None:
        super().__init__()
        self.program = program
        self.run = run
        self._structure = structure
        self.names: list[str] = []
        self.training = False  # an exported program knows no modes, so that it can't be switched

    def forward(self, *leaves: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The results' tensors, in order."""
        data_dependence.begin(leaves)
        arguments = _pytree.tree_unflatten(list(leaves), self._structure)
        results = _pytree.tree_flatten_with_path(self.run(*arguments))[0]
        self.names = [_name(path) for path, item in results if item is not None]
        return tuple(_as_tensor(item) for _, item in results if item is not None)


def _name(path: Sequence[Any]) -> str:
    """The name of a result by its keys in dicts, tuples and named tuples."""
    keys = [
        str(next(getattr(key, each) for each in ("key", "idx", "name") if hasattr(key, each)))
        for key in path
    ] or ["0"]
    return ("output" if keys[0].isdigit() else "") + "_".join(keys)


def _as_tensor(value: Any) -> torch.Tensor:
    return value if isinstance(value, torch.Tensor) else torch.tensor(value)


class ProgramInterpreter(torch.fx.Interpreter):
    """Runs the graph of an exported program, each operator through a Caller."""

    def __init__(self, module: torch.fx.GraphModule, call: Caller) -> None:
        super().__init__(module)
        self._call = call

    def run_node(self, n: torch.fx.Node) -> Any:
        """One node of the graph, which messages of its operator name."""
        self._current = n
        if n.op == "output":
            results = self.fetch_args_kwargs_from_env(n)
            self._call.aliases.require_current("the program's result", results)
        return super().run_node(n)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if isinstance(target, (torch._ops.OpOverload, torch._ops.HigherOrderOperator)):
            place = self._current.stack_trace or str(self._current)
            kind = _kind(target)
            data_dependence.require_known(kind, _pytree.tree_leaves(args), place.strip())
        if isinstance(target, torch._ops.OpOverload):
            return self._call(target, args, kwargs)
        if target is not operator.getitem and any(isinstance(arg, torch.Tensor) for arg in args):
            return arithmetic(target, args)
        return super().call_function(target, args, kwargs)


def _kind(target: Any) -> str:
    if isinstance(target, torch._ops.OpOverload):
        return target._schema.name
    return f"higher_order::{target.name()}"


class ScriptInterpreter:
    """Runs the graph of a TorchScript module or function, with all calls inlined.

    `arguments` are its arguments as values of the graph, `declared` as the schema declares them.
    """

    def __init__(self, script: Any, call: Caller) -> None:
        self._script = script
        self._call = call
        self.graph = script.graph.copy()
        torch._C._jit_pass_inline(self.graph)
        self._schemas: dict[str, Any] = {}
        self._sources = _sources(self.graph)
        inputs = list(self.graph.inputs())
        self._has_self = isinstance(script, torch.jit.ScriptModule)
        self.arguments = inputs[1:] if self._has_self else inputs
        schema = script.forward.schema if self._has_self else script.schema
        self.declared = schema.arguments[1:] if self._has_self else schema.arguments

    def __call__(self, *arguments: Any) -> Any:
        """The results for structured arguments."""
        values: Environment = {}
        given = [self._script, *arguments] if self._has_self else list(arguments)
        for parameter, value in zip(self.graph.inputs(), given):
            values[parameter.debugName()] = value
        results = self._run_block(self.graph, values)
        self._call.aliases.require_current("the program's result", results)
        return results[0] if len(results) == 1 else tuple(results)

    def _run_block(self, block: Any, values: Environment) -> list[Any]:
        for node in block.nodes():
            results = self._run_node(node, values)
            for output, result in zip(node.outputs(), results):
                values[output.debugName()] = result
        return [values[output.debugName()] for output in _results(block)]

    def _run_node(self, node: Any, values: Environment) -> Sequence[Any]:
        kind = node.kind()
        operands = [values[value.debugName()] for value in node.inputs()]
        data_dependence.require_known(kind, operands, node.sourceRange().strip())
        if kind == "prim::Constant":
            return [next(node.outputs()).toIValue()]
        if kind == "prim::GetAttr":
            return [getattr(operands[0], node.s("name"))]
        if kind in _PRIMITIVES:
            return [_PRIMITIVES[kind](*operands)]
        if kind in _ON_LISTS and isinstance(operands[0], list):
            return [_ON_LISTS[kind](*operands)]
        if kind in ("prim::ListConstruct", "prim::TupleConstruct"):
            return [list(operands) if kind == "prim::ListConstruct" else tuple(operands)]
        if kind in ("prim::ListUnpack", "prim::TupleUnpack"):
            return operands[0]
        if kind == "prim::DictConstruct":
            return [dict(zip(operands[::2], operands[1::2]))]
        if kind == "prim::If":
            branches = list(node.blocks())
            return self._run_block(branches[0] if bool(operands[0]) else branches[1], values)
        if kind == "prim::Loop":
            return self._run_loop(node, operands, values)
        if kind == "prim::RaiseException":
            raise UnsupportedOperatorError(f"the program raises for these inputs: {operands[0]}")
        result = self._run_operator(node, operands)
        return result if node.outputsSize() > 1 else [result]

    def _run_loop(self, node: Any, operands: list[Any], values: Environment) -> list[Any]:
        limit, condition, *carried = operands
        body = next(node.blocks())
        parameters = [value.debugName() for value in body.inputs()]
        step = 0
        while step < limit and bool(condition):
            values.update(zip(parameters, [step, *carried]))
            condition, *carried = self._run_block(body, values)
            step += 1
        return carried

    def _run_operator(self, node: Any, operands: list[Any]) -> Any:
        namespace, _, name = node.kind().partition("::")
        text = node.schema()
        if text in ("", "(no schema)"):
            raise UnsupportedOperatorError(
                f"{node.kind()} of the TorchScript graph can't be imported: {str(node).strip()}"
            )
        schema = self._schemas.get(text)
        if schema is None:
            schema = self._schemas[text] = torch._C.parse_schema(text)
        packet = getattr(getattr(torch.ops, namespace), name)
        op = getattr(packet, schema.overload_name or "default", packet)
        args, kwargs = [], {}
        for argument, value in zip(schema.arguments, operands):
            if argument.kwarg_only:
                kwargs[argument.name] = value
            else:
                args.append(value)
        with _recorded_as(self._sources.get(_first_output(node), "")):
            if isinstance(op, torch._ops.OpOverload):
                return self._call(op, args, kwargs)
            return packet(*args, **kwargs)


def _sources(graph: Any) -> dict[str, str]:
    """Names of nodes in spans, such as "aten::relu_0", by their first results."""
    counts: collections.Counter[str] = collections.Counter()
    found: dict[str, str] = {}

    def visit(block: Any) -> None:
        for node in block.nodes():
            kind = node.kind()
            found[_first_output(node)] = f"{kind}_{counts[kind]}"
            counts[kind] += 1
            for inner in node.blocks():
                visit(inner)

    visit(graph)
    return found


def _first_output(node: Any) -> str:
    return next((str(output.debugName()) for output in node.outputs()), "")


@contextlib.contextmanager
def _recorded_as(source: str) -> Iterator[None]:
    """Have an export name the nodes that it records "/<source>/<operator>"."""
    state = torch._C._get_tracing_state() if source else None
    if state is None:
        yield
        return
    state.push_scope(f"operator::{source}")
    try:
        yield
    finally:
        state.pop_scope()


def _results(block: Any) -> Any:
    return block.return_node().inputs() if hasattr(block, "return_node") else block.outputs()


def _append(values: list[Any], item: Any) -> list[Any]:
    values.append(item)
    return values


def _size(data: torch.Tensor, axis: int | None = None) -> Any:
    return [int(extent) for extent in data.shape] if axis is None else int(data.shape[axis])


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, torch.Tensor) else value


# Operators of which PyTorch has some on tensors.
_ON_LISTS: Mapping[str, Callable[..., Any]] = {
    "aten::add": operator.add,
    "aten::add_": operator.iadd,
    "aten::mul": operator.mul,
}

# Operators on Python's values, lists above all, which have to stay the same objects; and
# extents, which are plain numbers here.
_PRIMITIVES: Mapping[str, Callable[..., Any]] = {
    "aten::Bool": bool,
    "aten::Float": lambda value: float(_number(value)),
    "aten::FloatImplicit": lambda value: float(_number(value)),
    "aten::Int": lambda value: int(_number(value)),
    "aten::IntImplicit": lambda value: int(_number(value)),
    "aten::ScalarImplicit": _number,
    "aten::__contains__": operator.contains,
    "aten::__is__": operator.is_,
    "aten::__isnot__": operator.is_not,
    "aten::__getitem__": operator.getitem,
    "aten::__not__": operator.not_,
    "aten::append": _append,
    "aten::dim": lambda data: data.dim(),
    "aten::is_autocast_enabled": lambda *_: False,
    "aten::is_grad_enabled": lambda: True,  # without, layers call kernels that ONNX lacks
    "aten::len": len,
    "aten::numel": lambda data: data.numel(),
    "aten::size": _size,
    "aten::warn": lambda *_: None,
    "prim::NumToTensor": torch.tensor,
    "prim::TupleIndex": operator.getitem,
    "prim::data": lambda data: data,
    "prim::device": lambda data: data.device,
    "prim::dtype": lambda data: data.dtype,
    "prim::is_cuda": lambda data: data.is_cuda,
    "prim::layout": lambda data: data.layout,
    "prim::unchecked_cast": lambda value: value,
    "prim::unchecked_unwrap_optional": lambda value: value,
    "aten::_unwrap_optional": lambda value: value,
    "prim::Uninitialized": lambda: None,
    "prim::max": max,
    "prim::min": min,
}
