"""BYOC passes: MergeComposite, AnnotateTarget, MergeCompilerRegions, PartitionGraph.

`compiler.partition` outlines the regions. The resulting functions are the same as those that its
partitioners create, and `relay.build` compiles them in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax

from ...errors import RelayError
from ...ir.dataflow_graph import PROJECTION, TRANSPARENT, RelaxFunction
from ...ir.outline import Group, outline
from ...ir.rewrite import relax_functions
from ...ir.scopes import map_scopes
from ..dataflow_pattern import DFPattern
from ..nested_expressions import handle, nested_scope, operands, post_order, rewrite, with_operands
from ..op.contrib.register import load
from ..relay_to_relax import Flattener
from ..type_infer import infer_type
from .base import (
    evaluated_if_open,
    is_external,
    map_functions,
    module_pass,
    partition_pass,
    with_functions,
)
from .regions import DEFAULT, Region, Regions, begin, compiler_of, end, is_begin, is_end

PatternTable = Sequence[tuple[Any, ...]]


def MergeComposite(pattern_table: PatternTable) -> Any:
    """Outline every match of a pattern into a function with the attribute `Composite`.

    Parameters
    ----------
    pattern_table : list of (name, pattern) or (name, pattern, check)
        In order of priority. `check(root)` may reject a match.
    """
    rows = []
    for row in pattern_table:
        if len(row) not in (2, 3) or not isinstance(row[1], DFPattern):
            raise RelayError(
                "a row of a pattern table is (name, pattern) or (name, pattern, check)"
            )
        rows.append((str(row[0]), row[1], row[2] if len(row) == 3 else None))

    def change(body: relax.Expr) -> relax.Expr:
        for name, pattern, check in rows:
            body = pattern.partition(body, {"Composite": name}, check or (lambda _: True))
        return body

    return partition_pass("MergeComposite", change)


def AnnotateTarget(targets: str | Sequence[str], include_non_call_ops: bool = True) -> Any:
    """Annotate supported operators with `annotation.compiler_begin` and `compiler_end`.

    Branches and local functions are annotated separately; a region never leaves its scope.
    An operator is supported if its attribute `target.<compiler>` accepts the call, or its attrs
    and operands where the attribute is a function of two, as in TVM 0.7. A composite function is
    supported if its name starts with `<compiler>.`. The first matching compiler is selected.
    """
    compilers = [targets] if isinstance(targets, str) else [str(each) for each in targets]
    for compiler in compilers:
        load(compiler)

    def change(body: relax.Expr) -> relax.Expr:
        return _Annotator(compilers, include_non_call_ops).annotate(_without_default(body))

    return partition_pass("AnnotateTarget", change)


def MergeCompilerRegions() -> Any:
    """Merge adjacent regions of one compiler unless this creates a cycle."""
    return partition_pass("MergeCompilerRegions", _merged)


def PartitionGraph(mod_name: str = "default", bind_constants: bool = True) -> Any:
    """Outline each region into a function: `tvmgen_<mod_name>_<compiler>_main_<number>`.

    Parameters
    ----------
    mod_name : str
        Prefix of the functions' names.
    bind_constants : bool
        Embed constants that a region uses into its function instead of passing them.
    """

    def change(mod: tvm.IRModule) -> tvm.IRModule:
        mod = evaluated_if_open(mod)
        for gvar, function in relax_functions(mod):
            if not is_external(function):
                mod = _Partitioner(mod, gvar, mod_name, bind_constants).partitioned(function)
        return map_functions(mod, _optimized)

    return module_pass("PartitionGraph", 0, change)


def _optimized(function: relax.Function, _mod: tvm.IRModule) -> relax.Function:
    """Apply the pass registered as "relay.ext.<compiler>.optimize" to a compiler's function."""
    if not is_external(function):
        return function
    optimize = tvm.get_global_func(f"relay.ext.{function.attrs['Compiler']}.optimize", True)
    if optimize is None:
        return function
    alone = tvm.IRModule({"main": function.without_attr("Compiler")})
    return optimize(alone)["main"].with_attr("Compiler", function.attrs["Compiler"])


class _Annotator:
    """Annotates nodes by compiler, regions by begin and end; earlier annotations are kept."""

    def __init__(self, compilers: list[str], non_calls: bool) -> None:
        self.compilers = compilers
        self.non_calls = non_calls
        self.compiler: dict[int, tuple[relax.Expr, str]] = {}

    def annotate(self, body: relax.Expr) -> relax.Expr:
        made: dict[int, relax.Expr] = {}
        earlier = Regions(body)
        for node in post_order(body):
            below = [made[handle(each)] for each in operands(node)]
            if earlier.of(node) is not None and not is_begin(node) and not is_end(node):
                made[handle(node)] = with_operands(node, below)
            elif isinstance(node, relax.TupleGetItem):
                made[handle(node)] = self._field(below[0], int(node.index))
            else:
                made[handle(node)] = self._change(node, with_operands(node, below))
        return self._ended(made[handle(body)])

    def _field(self, whole: relax.Expr, index: int) -> relax.Expr:
        if self.non_calls:
            return self._marked(infer_type(relax.TupleGetItem(whole, index)), "")
        return infer_type(relax.TupleGetItem(self._ended(whole), index))

    def _change(self, old: relax.Expr, new: relax.Expr) -> relax.Expr:
        if is_begin(old):
            return with_operands(new, [self._ended(new.args[0])])
        if is_end(old):
            inner = new.args[0]
            self.compiler.setdefault(handle(inner), (inner, compiler_of(new)))
            return new
        if isinstance(old, relax.Call):
            return self._marked(new, self._supported(old))
        if isinstance(old, relax.Tuple) and self.non_calls:
            return self._marked(new, "")
        if isinstance(old, relax.SeqExpr) and operands(
            new
        ):  # a match_cast, which stays by its value
            known = self.compiler.get(handle(operands(new)[0]))
            if known is not None:
                self.compiler[handle(new)] = (new, known[1])
            return new
        return with_operands(new, [self._ended(each) for each in operands(new)])

    def _supported(self, call: relax.Call) -> str:
        """Select the first compiler that supports a call."""
        if isinstance(call.op, relax.Function):
            composite = str((call.op.attrs or {}).get("Composite", ""))
            wanted = composite.split(".")[0] if "." in composite else ""
            return wanted if wanted in self.compilers else DEFAULT
        return next((each for each in self.compilers if supports(each, call)), DEFAULT)

    def _marked(self, node: relax.Expr, compiler: str) -> relax.Expr:
        """Wrap the operands of a node with begin annotations of its region."""
        values: list[tuple[relax.Expr, bool]] = []
        shared = ""
        for operand in operands(node):
            source = DEFAULT
            if is_begin(operand):
                kept = compiler_of(operand) != DEFAULT
                values.append((operand if kept else operand.args[0], kept))
                if is_end(operand.args[0]):
                    source = compiler_of(operand.args[0])
            elif handle(operand) in self.compiler:
                source = self.compiler[handle(operand)][1]
                values.append((self._ended(operand), False))
            else:
                values.append((operand, False))
            shared = source if shared in ("", source) else DEFAULT
        chosen = compiler or shared
        if values:
            entering = [each if done else begin(each, chosen) for each, done in values]
            node = with_operands(node, entering)
        self.compiler[handle(node)] = (node, chosen)
        return node

    def _ended(self, value: relax.Expr) -> relax.Expr:
        """Wrap a value with the end annotation of its region; leaf nodes are in no region."""
        if is_end(value) and compiler_of(value) == DEFAULT:
            value = value.args[0]
        known = self.compiler.get(handle(value))
        if known is None or is_end(value) or not operands(value):
            return value
        return end(value, known[1])


def supports(compiler: str, call: relax.Call) -> Any:
    """Whether a compiler takes a single call: a truth value, None if it knows no such operator.

    What decides is the operator's attribute `target.<compiler>`: a bool, or a function of the call,
    or of its attrs and operands; it may return `Unsupported(reason)`.
    """
    key = f"target.{compiler}"
    supported = None
    if isinstance(call.op, tvm.ir.Op) and call.op.has_attr(key):
        supported = call.op.get_attr(key)
    if not callable(supported):
        return supported
    try:
        return supported(call)
    except TypeError as error:  # as TVM hides how many parameters a Python function has
        try:
            return supported(call.attrs, call.args)
        except TypeError:
            raise error from None


def _merged(body: relax.Expr) -> relax.Expr:
    regions = Regions(body)
    finished: set[int] = set()
    restrictions: dict[int, set[int]] = {}
    for node in list(post_order(body)):
        if is_end(node):
            region = regions.of(node)
            assert region is not None
            if region.number not in finished:
                _absorb_parents(regions, region, restrictions)
                finished.add(region.number)

    def change(old: relax.Expr, new: relax.Expr) -> relax.Expr:
        if is_begin(old) and is_end(old.args[0]) and regions.of(old) is regions.of(old.args[0]):
            return new.args[0].args[0]
        return new

    return rewrite(body, change)


def _absorb_parents(regions: Regions, region: Region, restrictions: dict[int, set[int]]) -> None:
    """Merge producer regions into this one unless a value in between creates a cycle."""
    parents: list[Region] = []
    between: list[relax.Expr] = []  # tuples outside of all regions
    for mark in region.ins:
        parent = regions.of(mark.args[0])
        if parent is None:
            between += operands(mark)
        elif parent not in parents:
            parents.append(parent)
    own = restrictions.setdefault(region.number, set())
    seen: set[int] = set()
    while between:
        node = between.pop()
        found = regions.of(node)
        if found is not None:
            own |= restrictions.get(found.number, set()) | {found.number}
        elif handle(node) not in seen:
            seen.add(handle(node))
            between += operands(node)
    for parent in parents:
        own |= restrictions.get(parent.number, set())
    for parent in parents:
        if parent.compiler != region.compiler:
            own.add(parent.number)
        elif parent.number not in own:
            regions.merge(parent, region)
            for numbers in restrictions.values():
                if parent.number in numbers:
                    numbers.discard(parent.number)
                    numbers.add(region.number)


def _without_default(body: relax.Expr) -> relax.Expr:
    """Remove "default" annotations; split the end annotation of a tuple into its fields."""

    def change(_old: relax.Expr, new: relax.Expr) -> relax.Expr:
        if (is_begin(new) or is_end(new)) and compiler_of(new) == DEFAULT:
            return new.args[0]
        if is_end(new) and isinstance(new.args[0], relax.Tuple):
            compiler = compiler_of(new)
            return with_operands(new.args[0], [end(each, compiler) for each in new.args[0].fields])
        return new

    return rewrite(body, change)


class _Partitioner:
    """Outlines the annotated regions of one function and of the scopes in it."""

    def __init__(self, mod: tvm.IRModule, gvar: Any, mod_name: str, bind: bool) -> None:
        self.mod, self.gvar = mod, gvar
        self.title = f"tvmgen_{mod_name}_{{}}_{gvar.name_hint}_{{}}"
        self.bind_constants = bind
        self.count = 0  # numbers of regions that are taken

    def partitioned(self, function: relax.Function) -> tvm.IRModule:
        made = map_scopes(function, self._scope)
        return self.mod if made.same_as(function) else with_functions(self.mod, {self.gvar: made})

    def _scope(self, function: relax.Function) -> relax.Function:
        """Outline the regions of one scope, which takes the function's place in the module."""
        marked = nested_scope(function)
        if not any(is_begin(node) or is_end(node) for node in post_order(marked)):
            return function
        body = _without_default(marked)
        regions = Regions(body, self.count)
        self.count = regions.count
        plain: dict[int, relax.Expr] = {}
        for node in post_order(body):
            below = [plain[handle(each)] for each in operands(node)]
            is_mark = is_begin(node) or is_end(node)
            plain[handle(node)] = below[0] if is_mark else with_operands(node, below)
        flattener = _Numbering()
        result = flattener.leaf(plain[handle(body)])
        sequence = relax.SeqExpr([relax.BindingBlock(flattener.bindings)], result)
        made = relax.Function(function.params, sequence, result.ty, attrs=function.attrs)
        main = RelaxFunction(with_functions(self.mod, {self.gvar: made}), self.gvar.name_hint)
        groups = self._groups(main, regions, plain, flattener)
        self.mod = outline(main, groups) if groups else main.module
        self.gvar = self.mod.get_global_var(self.gvar.name_hint)
        return self.mod[self.gvar]

    def _groups(
        self,
        main: RelaxFunction,
        regions: Regions,
        plain: dict[int, relax.Expr],
        flattener: _Numbering,
    ) -> list[Group]:
        """The bindings of each region; regions without operators have none."""
        index_of = {str(var.name): index for index, var in enumerate(main.variables)}
        groups = []
        for region in regions.all():
            names = {
                each
                for node in region.nodes.values()
                for each in flattener.names(plain[handle(node)], region, regions, node)
            }
            members = sorted(
                index_of[each]
                for each in names
                if main.kinds[index_of[each]] not in (PROJECTION, TRANSPARENT)
            )
            title = re.sub(r"\W", "_", self.title.format(region.compiler, region.number))
            attrs = {
                "Compiler": region.compiler,
                "Primitive": tvm.tirx.IntImm("int32", 1),
                "Inline": tvm.tirx.IntImm("int32", 1),
                "global_symbol": title,
            }
            leaving = [flattener.variable(plain[handle(mark)]) for mark in region.outs]
            order = [index_of[name] for name in leaving if name]
            lift = not self.bind_constants
            if members:
                groups.append(Group(members, title, attrs, lift_constants=lift, order=order))
        return groups


class _Numbering(Flattener):
    """Creates unique binding names, so that nodes can be found in the resulting module."""

    def bind(self, value: relax.Expr) -> relax.Var:
        var = relax.Var(f"lv{len(self.bindings)}", value.ty)
        self.bindings.append(relax.VarBinding(var, value))
        return var

    def match(self, value: relax.Expr, ty: Any, _name: str = "") -> relax.Var:
        return super().match(value, ty, f"lv{len(self.bindings)}")

    def names(
        self, node: relax.Expr, region: Region, regions: Regions, marked: relax.Expr
    ) -> list[str]:
        """Names of the bindings of a region's node, including its local function."""
        if is_begin(marked) or is_end(marked) or regions.of(marked) is not region:
            return []
        each = [node, node.op] if isinstance(node, relax.Call) else [node]
        return [name for name in map(self.variable, each) if name]

    def variable(self, node: Any) -> str:
        """Name of the binding created for a node; "" if there is none."""
        value = self._value(node) if isinstance(node, relax.Expr) else None
        bound = (binding.var for binding in self.bindings)
        return next((str(var.name) for var in bound if var.same_as(value)), "")
