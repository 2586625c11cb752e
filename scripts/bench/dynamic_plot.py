"""A table and a plot of the times of `dynamic_shapes.py`, as Markdown and SVG."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

Row = dict[str, Any]

WIDTH, HEIGHT, LEFT, TOP = 900, 260, 70, 30
RATIOS = (0.5, 2.5)
"""What the plots show of a ratio."""
COLUMNS = ("symbolic", "static", "onnxruntime", "openvino")


def write(rows: list[Row], folder: Path) -> None:
    """Write `dynamic_times.md` and `images/dynamic_times.svg`."""
    rows = sorted(rows, key=lambda row: (row["network"], row["batch"], row["length"]))
    (folder / "images").mkdir(exist_ok=True)
    (folder / "images" / "dynamic_times.svg").write_text(plot(rows))
    (folder / "dynamic_times.md").write_text(table(rows))


def of_static(row: Row) -> float:
    """How many times as long as the static library the one with symbols takes."""
    return float(row["symbolic"] / row["static"])


def of_peers(row: Row) -> float:
    """How many times as long the faster peer takes."""
    return float(min(row["onnxruntime"], row["openvino"]) / row["symbolic"])


def table(rows: list[Row]) -> str:
    """All points, and how many of them are where they should be."""
    near = sum(of_static(row) <= 1.1 for row in rows)
    ahead = sum(of_peers(row) >= 1 for row in rows)
    lines = [
        "# One library for all extents: all points",
        "",
        "`scripts/bench/dynamic_shapes.py` measured them: milliseconds of processor time, one",
        f"thread. Of {len(rows)} points, {near} are within 10 % of the library for that point",
        f"alone, and {ahead} at least as fast as the faster peer.",
        "",
        "![times relative to the static libraries and the peers](images/dynamic_times.svg)",
        "",
        "| network | batch | length | symbolic | static | onnxruntime | OpenVINO "
        "| / static | peer / |",
        "|" + "---|" * 9,
    ]
    for row in rows:
        times = " | ".join(f"{row[name]:.2f}" for name in COLUMNS)
        where = f"{row['network']} | {row['batch']} | {row['length'] or ''}"
        lines.append(f"| {where} | {times} | {of_static(row):.2f} | {of_peers(row):.2f} |")
    error = max(row["error"] for row in rows)
    lines += ["", f"Results differ from onnxruntime's by {error:.0e} of the largest one at most."]
    return "\n".join(lines) + "\n"


def plot(rows: list[Row]) -> str:
    """Two diagrams below each other, a group of bars for each network."""
    parts = [
        *_diagram(rows, 0, of_static, "time / static", 1.1, above_is_good=False),
        *_diagram(rows, HEIGHT, of_peers, "faster peer / time", 1.0, above_is_good=True),
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {2 * HEIGHT}" font-size="11"'
    )
    return "\n".join([f'{head} font-family="sans-serif">', *parts, "</svg>\n"])


def _diagram(
    rows: list[Row], top: int, ratio: Any, title: str, goal: float, above_is_good: bool
) -> list[str]:
    """Bars of a ratio; those that miss the goal have another color."""
    groups = [(name, list(each)) for name, each in itertools.groupby(rows, lambda r: r["network"])]
    step = (WIDTH - LEFT - 10) / (len(rows) + len(groups))
    low, high = RATIOS
    inner = HEIGHT - TOP - 40

    def height(value: float) -> float:
        return top + TOP + inner * (1 - (min(max(value, low), high) - low) / (high - low))

    parts = [f'<text x="{LEFT}" y="{top + 18}" font-weight="bold">{title}</text>']
    for mark in (0.5, 1.0, 1.5, 2.0, 2.5):
        y = height(mark)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 30}" y="{y + 4:.1f}">{mark}</text>')
    x = float(LEFT)
    for name, each in groups:
        parts.append(f'<text x="{x:.1f}" y="{top + HEIGHT - 20}">{name}</text>')
        for row in each:
            value = ratio(row)
            is_good = value >= goal if above_is_good else value <= goal
            y, bottom = height(value), height(low)
            said = f"{name}, batch {row['batch']}, length {row['length']}: {value:.2f}"
            color = "#4878a8" if is_good else "#c05040"
            parts.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{step * 0.8:.1f}" '
                f'height="{max(bottom - y, 0.5):.1f}" fill="{color}"><title>{said}</title></rect>'
            )
            x += step
        x += step
    y = height(goal)
    parts.append(f'<line x1="{LEFT}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#333"/>')
    return parts
