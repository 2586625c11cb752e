"""`relay.analysis`: analyses of expressions and modules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import tvm
import tvm_ffi
from tvm import relax

from ..errors import RelayError
from ..ir.constants import static_shape, tensor_types
from ..ir.rewrite import relax_functions
from . import dialect
from .compiled_function import Compiled, CompiledFunction
from .expr import Tuple, as_expr
from .nested_expressions import handle, nested, nested_function, operands, post_order
from .op import registry
from .relay_to_relax import function_of
from .type_analysis import Feature as Feature
from .type_analysis import all_type_vars as all_type_vars
from .type_analysis import bound_type_vars as bound_type_vars
from .type_analysis import check_kind as check_kind
from .type_analysis import detect_feature as detect_feature
from .type_analysis import free_type_vars as free_type_vars
from .type_analysis import unmatched_cases as unmatched_cases
from .variables import all_vars as all_vars
from .variables import body_of, nodes
from .variables import bound_vars as bound_vars
from .variables import free_vars as free_vars
from .variables import post_order_visit as post_order_visit


def all_dtypes(expr: Any) -> set[str]:
    """Collect the dtypes of all tensors."""
    return {str(ty.dtype) for node in nodes(expr) for ty in tensor_types(node.ty)}


def well_formed(expr: Any) -> bool:
    """Whether every variable is bound only once."""
    counts: Counter[int] = Counter()
    for node in nodes(expr):
        if isinstance(node, relax.Function):
            counts.update(handle(var) for var in node.params)
    return all(count == 1 for count in counts.values())


def check_constant(expr: Any) -> bool:
    """Whether the expression contains no variables and can be evaluated at compile time."""
    return not free_vars(expr)


def check_basic_block_normal_form(expr: Any) -> bool:
    """Whether values used in several branches are computed before the branches: always True."""
    del expr
    return True


def _main(mod: Any) -> relax.Expr:
    return mod["main"] if isinstance(mod, tvm.IRModule) else mod


def _calls(mod: Any) -> Iterator[tuple[str, relax.Call]]:
    """Relay calls and operator names, including functions called where defined (fused ones)."""
    roots = [f for _, f in relax_functions(mod)] if isinstance(mod, tvm.IRModule) else [mod]
    for root in roots:
        for node in nodes(root):
            if dialect.is_relay(node):
                yield dialect.relay_name(node), node


def list_op_freqs(mod: tvm.IRModule) -> dict[str, int]:
    """Count the calls of each operator."""
    return dict(Counter(name for name, _ in _calls(mod)))


def list_fake_quantized_op_freqs(mod: tvm.IRModule) -> dict[str, int]:
    """Count the calls of each operator between a dequantize and a quantize."""
    found: Counter[str] = Counter()
    for name, call in _calls(mod):
        if name == "qnn.quantize":
            found.update(_since_dequantized(call.args[0]))
    return dict(found)


def _since_dequantized(root: relax.Expr) -> list[str]:
    """Operators between a value and its source dequantizes; [] if a source is not dequantized."""

    def name_of(node: relax.Expr) -> str:
        return dialect.relay_name(node) if isinstance(node, tvm.ir.Call) else ""

    def below(node: relax.Expr) -> list[relax.Expr]:
        return [] if name_of(node) == "qnn.dequantize" else operands(node)

    found = list(post_order(root, below))
    if any(isinstance(node, relax.Var) for node in found):
        return []
    return [name for name in map(name_of, found) if name not in ("", "qnn.dequantize")]


def count_layers(expr: Any, valid_ops: Iterable[str]) -> int:
    """Return the largest number of operators in `valid_ops` on any path."""
    names = set(valid_ops)
    depth: dict[int, int] = {}
    for node in post_order(body_of(as_expr(_main(expr)))):
        if isinstance(node, relax.Function):
            depth[handle(node)] = count_layers(nested(node), names)
            continue
        own = max((depth[handle(each)] for each in operands(node)), default=0)
        counts = dialect.is_relay(node) and dialect.relay_name(node) in names
        depth[handle(node)] = own + counts
    return max(depth.values(), default=0)


def get_total_mac_number(expr: Any) -> int:
    """Count the multiply-accumulates of operators with a MAC count, such as conv2d and dense.

    Raises
    ------
    RelayError
        A shape is dynamic.
    """
    return sum(_macs(name, call) for name, call in _calls(expr))


def _macs(name: str, call: relax.Call) -> int:
    count = registry.lookup(name).macs
    if count is None:
        return 0
    shapes = [static_shape(each) for each in (call.args[0], call.args[1], call)]
    if any(shape is None for shape in shapes):
        raise RelayError(f"{name}: the number of multiplications needs known shapes")
    return count(dialect.attributes(call), *shapes)


def extract_intermdeiate_expr(mod: tvm.IRModule, expr_id: int) -> tvm.IRModule:
    """Return a module that computes the call or tuple field with this index in evaluation order."""
    function = mod["main"]
    kinds = (tvm.ir.Call, relax.TupleGetItem)
    steps = [node for node in post_order(nested(function)) if isinstance(node, kinds)]
    if not 0 <= expr_id < len(steps):
        raise RelayError(f"step {expr_id} is out of range; the module has {len(steps)} steps")
    body = steps[expr_id]
    used = {handle(var) for var in free_vars(body)}
    return _module(function_of([var for var in function.params if handle(var) in used], body))


def _module(function: relax.Function) -> tvm.IRModule:
    return tvm.IRModule({"main": function})


def extract_fused_functions(mod: tvm.IRModule) -> dict[str, relax.Function]:
    """Extract FuseOps' fused functions without duplicates, keyed by structural hash."""
    from .transform.fuse_ops import FuseOps

    found: dict[str, relax.Function] = {}
    for _, function in relax_functions(FuseOps(3)(mod)):
        for node in nodes(function):
            if isinstance(node, relax.Function) and "Primitive" in (node.attrs or {}):
                whole = nested_function(node)
                found.setdefault(f"{tvm_ffi.structural_hash(whole, True):x}", whole)
    return found


def search_fc_transpose(expr: Any) -> list[str]:
    """Names of the weights that reach a dense through a transpose."""
    found = []
    for name, call in _calls(expr):
        if name != "nn.dense":
            continue
        weight = call.args[1]
        if dialect.is_relay(weight) and dialect.relay_name(weight) == "transpose":
            source = weight.args[0]
            if isinstance(source, relax.Var):
                found.append(str(source.name))
    return found


def get_calibration_data(
    mod: tvm.IRModule, data: Mapping[str, Any]
) -> dict[tvm.ir.GlobalVar, dict[str, list[Any]]]:
    """Run a module once on the CPU and return inputs and outputs of each external subgraph.

    Parameters
    ----------
    mod : tvm.IRModule
        A partitioned module: `main` calls functions that have the attribute "Compiler".
    data : dict of str to array
        Values of the parameters of `main`.
    """
    inner = {
        gvar: function
        for gvar, function in relax_functions(mod)
        if function.attrs is not None and "Compiler" in function.attrs
    }
    calls = [
        node
        for node in post_order(nested(mod["main"]))
        if isinstance(node, tvm.ir.Call) and node.op in inner
    ]
    fields = [each for call in calls for each in (*call.args, call)]
    main = function_of(list(mod["main"].params), Tuple(fields))
    plain = {gvar: function.without_attr("Compiler") for gvar, function in inner.items()}
    whole = tvm.IRModule({**plain, tvm.ir.GlobalVar("main"): main})
    run = Compiled(CompiledFunction(whole, "main", tvm.target.Target("llvm")), tvm.cpu())
    values = iter(run(**{name: data[name] for name in run.parameters if name in data}))
    result: dict[tvm.ir.GlobalVar, dict[str, list[Any]]] = {}
    for call in calls:
        inputs = [next(values) for _ in call.args]
        output = next(values)
        outputs = output if isinstance(output, list) else [output]
        result[call.op] = {"inputs": inputs, "outputs": outputs}
    return result
