"""Pictures of TE schedules in Graphviz's language: `tvm.contrib.tedd` to old scripts.

    viz_dataflow_graph              stages and the tensors between them
    viz_schedule_tree               each stage's loops, and the loop that it is computed at
    viz_itervar_relationship_graph  how each stage's loops came from its axes

Nodes are called Stage_<s>, Tensor_<s>_<output> and IterVar_<s>_<i> by their numbers in the
schedule, so that edges can be found in the text.
"""

from __future__ import annotations

import html
from collections.abc import Iterator
from typing import Any

from tvm import te, tirx
from tvm.tirx import IterVar

from ...errors import ScheduleError
from ...support.atomic_file import write_file
from .dataflow import map_loads
from .relations import Fuse, Singleton, Split, Transform, position
from .schedule import Schedule
from .schedule_ops import infer_bound
from .stage import INLINE, INLINED_ALREADY, SCOPE, Stage

__all__ = ["viz_dataflow_graph", "viz_itervar_relationship_graph", "viz_schedule_tree"]

_TYPES = {
    IterVar.DataPar: ("kDataPar", "#FFFFFF"),
    IterVar.ThreadIndex: ("kThreadIndex", "#2980B9"),
    IterVar.CommReduce: ("kCommReduce", "#FAD7A0"),
    IterVar.Ordered: ("kOrdered", "#D5D8DC"),
    IterVar.Unrolled: ("kUnrolled", "#D2B4DE"),
    IterVar.Vectorized: ("kVectorized", "#AED6F1"),
    IterVar.Parallelized: ("kParallelized", "#F5B7B1"),
    IterVar.Tensorized: ("kTensorized", "#A9DFBF"),
}


def viz_dataflow_graph(
    sch: Schedule, show_svg: bool = False, dot_file_path: str = "", output_dot_string: bool = False
) -> Any:
    """Draw which stages read which tensors.

    `show_svg`: return the picture, as notebooks show it; needs the package `graphviz` (extra
    `viz`). `dot_file_path`: a file to write the text to. `output_dot_string`: return the text.
    Raises ScheduleError: `show_svg` without the package.
    """
    lines = []
    for number, stage in enumerate(sch.stages):
        for index in range(len(stage.op.input_tensors)):
            tensor = stage.op.input_tensors[index]
            source = sch.index(sch[tensor])
            lines.append(f"Tensor_{source}_{int(tensor.value_index)} -> Stage_{number}:I_{index}")
        ports = "|".join(f"<I_{index}>" for index in range(len(stage.op.input_tensors)))
        outs = "|".join(f"<O_{index}>" for index in range(stage.op.num_outputs))
        label = f"{{{{{ports}}}|{stage.name}|{{{outs}}}}}"
        lines.append(f'Stage_{number} [shape=Mrecord label="{label}"]')
        for index in range(stage.op.num_outputs):
            shape = ", ".join(map(str, stage.op.output(index).shape))
            text = f"{stage.name} ({shape})\\n{stage.op.output(index).dtype}"
            lines.append(f'Tensor_{number}_{index} [shape=box label="{text}"]')
            lines.append(f"Stage_{number}:O_{index} -> Tensor_{number}_{index}")
    return _shown("Dataflow Graph", lines, show_svg, dot_file_path, output_dot_string)


def viz_schedule_tree(
    sch: Schedule, show_svg: bool = False, dot_file_path: str = "", output_dot_string: bool = False
) -> Any:
    """Draw each stage's loops, and where it is computed; parameters as for the dataflow graph."""
    lines = [*_legend(), "ROOT [label=ROOT shape=oval margin=0]"]
    for number, stage in enumerate(sch.stages):
        rows = [_head(stage)]
        for place, leaf in enumerate(stage.leaf_iter_vars):
            rows.append(_row(stage, leaf, place, sch, _marks(stage, leaf)))
        if isinstance(stage.op, te.ComputeOp):
            rows.append(f'<TR><TD COLSPAN="2">{_computed(stage.op)}</TD></TR>')
        lines.append(f"Stage_{number} [shape=none margin=0 label=<{_table(rows)}>]")
    for number, stage in enumerate(sch.stages):
        if stage.attach_type == SCOPE and stage.attach_stage is not None:
            above = stage.attach_stage
            at = position(above.all_iter_vars, stage.attach_ivar)
            where = sch.index(above)
            target = f"Stage_{where}:IterVar_{where}_{at}"
        else:
            target = "ROOT"
        lines.append(f'Stage_{number} -> {target} [color="#000000"]')
    return _shown("Schedule Tree", lines, show_svg, dot_file_path, output_dot_string)


def viz_itervar_relationship_graph(
    sch: Schedule, show_svg: bool = False, dot_file_path: str = "", output_dot_string: bool = False
) -> Any:
    """Draw splits and fusions of each stage; parameters as for the dataflow graph."""
    bounds = infer_bound(sch)
    lines = [*_legend()]
    for number, stage in enumerate(sch.stages):
        lines.append(f'subgraph cluster_Stage_{number} {{ label="{stage.name}"')
        for place, axis in enumerate(stage.all_iter_vars):
            row = _row(stage, axis, place, sch, [str(bounds.get(axis, axis.dom))])
            name = f"IterVar_{number}_{place}"
            table = _table([row.replace(f'PORT="{name}"', 'PORT="itervar"')])
            lines.append(f"{name} [shape=none margin=0 label=<{table}>]")
        for index, relation in enumerate(stage.relations):
            lines += _relation(stage, number, index, relation)
        lines.append("}")
    title = "IterVar Relationship Graph"
    return _shown(title, lines, show_svg, dot_file_path, output_dot_string)


def _relation(stage: Stage, number: int, index: int, relation: Any) -> Iterator[str]:
    """A node for a split or fusion, and its edges."""

    def loop(iter_var: Any) -> str:
        return f"IterVar_{number}_{position(stage.all_iter_vars, iter_var)}:itervar"

    kind = type(relation).__name__
    name = f"{kind}_Relation_{number}_{index}"
    if isinstance(relation, Split):
        given = {"Input": relation.parent}
        made = {"Outer": relation.outer, "Inner": relation.inner}
    elif isinstance(relation, Fuse):
        given = {"Outer": relation.outer, "Inner": relation.inner}
        made = {"Fused": relation.fused}
    elif isinstance(relation, Transform):
        given = {f"Input{i}": loop for i, loop in enumerate(relation.parents)}
        made = {f"Output{i}": loop for i, loop in enumerate(relation.made)}
    else:
        assert isinstance(relation, Singleton)
        given, made = {}, {"Iter": relation.iter}
    cells = "".join(f'<TD PORT="{port}">{port}</TD>' for port in (*given, *made))
    title = f'<TD COLSPAN="{len(given) + len(made)}">{kind}</TD>'
    table = _table([f"<TR>{title}</TR>", f"<TR>{cells}</TR>"])
    yield f"{name} [shape=none margin=0 label=<{table}>]"
    yield from (f"{loop(axis)} -> {name}:{port}" for port, axis in given.items())
    yield from (f"{name}:{port} -> {loop(axis)}" for port, axis in made.items())


def _table(rows: list[str]) -> str:
    style = 'BORDER="0" CELLBORDER="1" CELLSPACING="0" CELLPADDING="4"'
    return f"<TABLE {style}>{''.join(rows)}</TABLE>"


def _head(stage: Stage) -> str:
    inlined = "<br/>inlined" if stage.attach_type in (INLINE, INLINED_ALREADY) else ""
    scope = f"<br/>Scope: {stage.scope}" if stage.scope else ""
    text = f"{_escaped(stage.name)}{scope}{inlined}"
    return f'<TR><TD COLSPAN="2" BGCOLOR="lightgrey" PORT="stage">{text}</TD></TR>'


def _row(stage: Stage, axis: Any, place: int, sch: Schedule, more: list[str]) -> str:
    """A table's row for a loop: its place, name, type, and what else is to be said."""
    mark = stage.iter_var_attrs.get(axis)
    kind, color = _TYPES[mark.iter_type if mark is not None else int(axis.iter_type)]
    number = position(stage.all_iter_vars, axis)
    port = f"IterVar_{sch.index(stage)}_{number}"
    text = "<br/>".join([f"{_escaped(axis.var.name)}({kind})", *map(_escaped, more)])
    return f'<TR><TD>{place}</TD><TD BGCOLOR="{color}" PORT="{port}">{text}</TD></TR>'


def _marks(stage: Stage, axis: Any) -> list[str]:
    mark = stage.iter_var_attrs.get(axis)
    if mark is None:
        return []
    thread = [] if mark.bind_thread is None else [f"({mark.bind_thread.thread_tag})"]
    intrin = mark.tensor_intrin
    return thread if intrin is None else [*thread, f"(tensor_intrin:{intrin.name})"]


def _legend() -> Iterator[str]:
    rows = [f'<TR><TD BGCOLOR="{color}">{name}</TD></TR>' for name, color in _TYPES.values()]
    yield f'subgraph cluster_legend {{ label="Legend" legend [shape=none label=<{_table(rows)}>] }}'


def _computed(op: Any) -> str:
    """Text of a stage's computation, with the elements it reads as A[i, j]."""

    def element(tensor: Any, indices: list[Any]) -> Any:
        buffer = tirx.decl_buffer(tensor.shape, str(tensor.dtype), tensor.op.name, layout=None)
        return tirx.BufferLoad(buffer, indices)

    bodies = [map_loads(body, element) for body in op.body]
    terms = [each.source[0] if isinstance(each, tirx.Reduce) else each for each in bodies]
    return _escaped(f"[{', '.join(map(str, terms))}]")


def _escaped(value: Any) -> str:
    """Text for a label, without the printer's comment lines."""
    lines = [line for line in str(value).splitlines() if not line.lstrip().startswith("#")]
    return html.escape("\n".join(lines)).replace("\n", "<br/>")


def _shown(title: str, lines: list[str], show_svg: bool, path: str, as_text: bool) -> Any:
    body = "\n".join(f"  {line}" for line in lines)
    text = f'digraph "{title}" {{\n  rankdir=BT\n{body}\n}}\n'
    if path:
        write_file(path, text)
    if show_svg:
        try:
            import graphviz
        except ImportError as error:
            raise ScheduleError(
                "show_svg=True needs the package graphviz: install Baton's extra viz, or give "
                "dot_file_path= and draw the file with `dot -Tsvg`"
            ) from error
        return graphviz.Source(text)
    return text if as_text else None
