"""An acyclic graph of labeled boxes as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from .layered_layout import NODE_HEIGHT, NODE_WIDTH, layered

_LONGEST_LABEL = 24  # characters that fit into a box

_STYLE = """
svg { font: 12px system-ui, sans-serif; background: #fff; }
.node rect { stroke: #555; fill: #fff; }
.node.input rect { fill: #eee; }
.node.rejected rect { stroke: #b00020; stroke-width: 2; stroke-dasharray: 5 3; }
.node.chosen rect { stroke: #000; stroke-width: 4; }
.node text { text-anchor: middle; dominant-baseline: central; }
.edge { fill: none; stroke: #999; }
"""


@dataclass(frozen=True)
class Box:
    """A node of a drawn graph.

    Attributes
    ----------
    label : str
        Cut where it does not fit.
    tooltip : str
        What hovering shows.
    kind : str
        CSS classes besides `node`.
    style : str
        CSS of its rectangle, trusted text.
    data : mapping of str to str
        Its `data-` attributes, for scripts.
    """

    label: str
    tooltip: str
    kind: str = ""
    style: str = ""
    data: Mapping[str, str] = field(default_factory=dict)


def draw(boxes: Sequence[Box], predecessors: Sequence[Sequence[int]], title: str) -> str:
    """An `<svg>` element, laid out from top to bottom.

    Parameters
    ----------
    boxes : sequence of Box
    predecessors : sequence of sequences of int
        Boxes that an arrow leads from to box i, all smaller than i.
    title : str
        Shown by viewers.
    """
    layout = layered(predecessors)
    edges = "\n".join(_path(route) for route in layout.routes.values())
    nodes = "\n".join(_node(box, *center) for box, center in zip(boxes, layout.centers))
    size = f'width="{layout.width:.0f}" height="{layout.height:.0f}"'
    area = f'viewBox="0 0 {layout.width:.0f} {layout.height:.0f}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {area}>\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n{edges}\n{nodes}\n</svg>"
    )


def color(index: int) -> str:
    """A light color for a subgraph; neighbors in number differ clearly."""
    return f"hsl({index * 137.5 % 360:.0f}, 70%, {78 - 8 * (index // 3 % 2)}%)"


def _node(box: Box, x: float, y: float) -> str:
    label = box.label
    if len(label) > _LONGEST_LABEL:
        label = f"{label[: _LONGEST_LABEL - 1]}…"
    style = f' style="{escape(box.style)}"' if box.style else ""
    data = "".join(f' data-{key}="{escape(value)}"' for key, value in box.data.items())
    return (
        f'<g class="node {box.kind}"{data}><title>{escape(box.tooltip)}</title>'
        f'<rect x="{x - NODE_WIDTH / 2:.1f}" y="{y - NODE_HEIGHT / 2:.1f}" rx="5" '
        f'width="{NODE_WIDTH:.0f}" height="{NODE_HEIGHT:.0f}"{style}/>'
        f'<text x="{x:.1f}" y="{y:.1f}">{escape(label)}</text></g>'
    )


def _path(route: list[tuple[float, float]]) -> str:
    """A smooth line from the bottom of the first point's node to the top of the last one's."""
    (x, y), *rest = route
    y += NODE_HEIGHT / 2
    steps = [f"M{x:.1f} {y:.1f}"]
    for number, (next_x, next_y) in enumerate(rest, 1):
        if number == len(rest):
            next_y -= NODE_HEIGHT / 2
        middle = (y + next_y) / 2
        steps.append(f"C{x:.1f} {middle:.1f} {next_x:.1f} {middle:.1f} {next_x:.1f} {next_y:.1f}")
        x, y = next_x, next_y
    return f'<path class="edge" d="{" ".join(steps)}"/>'
