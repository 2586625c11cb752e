"""Charts as inline SVG: kernels under a roofline, and memory over the calls of an inference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from .vm_program import Program

_WIDTH, _HEIGHT = 960, 520
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 24, 24, 52
_LARGEST_POINT = 22.0  # radius in pixels, of a kernel that takes all of the time


@dataclass(frozen=True)
class Point:
    """A kernel in the roofline plot.

    Attributes
    ----------
    kernel : int
        Index of the kernel, which scripts of the page find it by.
    intensity : float
        Floating-point operations per byte of operands and results.
    gflops : float
        10^9 floating-point operations per second.
    share : float
        Of the inference's time, 0 to 1; the point's area.
    label : str
        What hovering shows.
    """

    kernel: int
    intensity: float
    gflops: float
    share: float
    label: str


def roofline(points: Sequence[Point], peak: float | None, memory: float | None) -> str:
    """Rates of kernels over their intensities, both logarithmic, under the machine's limits.

    Parameters
    ----------
    points : sequence of Point
        Their intensities and rates are above 0.
    peak : float or None
        10^9 floating-point operations per second from registers; None where it is not known.
    memory : float or None
        10^9 bytes per second from memory.
    """
    across = [point.intensity for point in points]
    up = [point.gflops for point in points]
    if peak and memory:
        across += [peak / memory / 4, peak / memory * 4]
        up += [peak, peak / 100]
    x = _Logarithmic(across, _LEFT, _WIDTH - _RIGHT)
    y = _Logarithmic(up, _HEIGHT - _BOTTOM, _TOP)
    parts = [_axes("FLOP per byte of operands and results", "GFLOP/s")]
    for value in x.decades():
        parts.append(_line(x(value), _TOP, x(value), _HEIGHT - _BOTTOM, "grid"))
        parts.append(_text(x(value), _HEIGHT - _BOTTOM + 18, f"{value:g}", "middle"))
    for value in y.decades():
        parts.append(_line(_LEFT, y(value), _WIDTH - _RIGHT, y(value), "grid"))
        parts.append(_text(_LEFT - 8, y(value) + 4, f"{value:g}", "end"))
    if peak and memory:
        ridge = peak / memory
        start = max(x.low, y.low / memory)
        parts.append(_line(x(start), y(start * memory), x(ridge), y(peak), "roof"))
        parts.append(_line(x(ridge), y(peak), _WIDTH - _RIGHT, y(peak), "roof"))
        parts.append(_text(_WIDTH - _RIGHT, y(peak) - 6, f"{peak:.0f} GFLOP/s", "end"))
        parts.append(_text(x(start) + 6, y(start * memory) - 8, f"{memory:.1f} GB/s", "start"))
    for point in sorted(points, key=lambda each: -each.share):
        radius = 3 + _LARGEST_POINT * math.sqrt(point.share)
        parts.append(
            f'<circle class="mark" data-kernel="{point.kernel}" cx="{x(point.intensity):.1f}" '
            f'cy="{y(point.gflops):.1f}" r="{radius:.1f}"><title>{escape(point.label)}</title>'
            "</circle>"
        )
    return _svg("Roofline", parts)


def memory_map(program: Program, kernels: Sequence[int | None]) -> str:
    """Tensors as rectangles, from their first to their last call and at their place in memory.

    A line shows the bytes that live in each call. What has an unknown size is left out.

    Parameters
    ----------
    program : Program
    kernels : sequence of int or None
        Index of the kernel of each call.
    """
    bases, total = [], 0
    for size in program.storages:
        bases.append(total)
        total += size or 0
    count = max(len(program.calls), 1)
    x = _Linear(count, _LEFT, _WIDTH - _RIGHT)
    y = _Linear(max(total, 1), _HEIGHT - _BOTTOM, _TOP)
    parts = [_axes("calls of kernels, in order", "MB")]
    for part in range(5):
        value = total * part / 4
        parts.append(_text(_LEFT - 8, y(value) + 4, f"{value / 1e6:.3g}", "end"))
    for tensor in program.tensors:
        if tensor.nbytes is None or program.storages[tensor.storage] is None:
            continue
        bottom = bases[tensor.storage] + tensor.offset
        names = program.calls[tensor.first].kernel, program.calls[tensor.last].kernel
        label = f"{tensor.nbytes} bytes, from {names[0]} to {names[1]}"
        kernel = kernels[tensor.first]
        parts.append(
            f'<rect class="mark" data-kernel="{"" if kernel is None else kernel}" '
            f'x="{x(tensor.first):.1f}" y="{y(bottom + tensor.nbytes):.1f}" '
            f'width="{x(tensor.last + 1) - x(tensor.first):.1f}" '
            f'height="{y(bottom) - y(bottom + tensor.nbytes):.1f}">'
            f"<title>{escape(label)}</title></rect>"
        )
    steps = [
        f"{x(i):.1f},{y(n):.1f} {x(i + 1):.1f},{y(n):.1f}" for i, n in enumerate(live(program))
    ]
    parts.append(f'<polyline class="live" points="{" ".join(steps)}"/>')
    parts.append(_text(_LEFT, _HEIGHT - _BOTTOM + 18, "0", "middle"))
    parts.append(_text(_WIDTH - _RIGHT, _HEIGHT - _BOTTOM + 18, str(len(program.calls)), "middle"))
    return _svg("Memory", parts)


def live(program: Program) -> list[int]:
    """Bytes of the tensors of known size that exist in each call of a program."""
    change = [0] * (len(program.calls) + 1)
    for tensor in program.tensors:
        change[tensor.first] += tensor.nbytes or 0
        change[tensor.last + 1] -= tensor.nbytes or 0
    found, alive = [], 0
    for each in change[:-1]:
        alive += each
        found.append(alive)
    return found


class _Logarithmic:
    """Positive values -> pixels; the axis begins and ends a little outside of them."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        self.low = min(values, default=1.0) / 1.5
        self._high = max(values, default=10.0) * 1.5
        self._start, self._end = start, end

    def __call__(self, value: float) -> float:
        part = math.log(value / self.low) / math.log(self._high / self.low)
        return self._start + part * (self._end - self._start)

    def decades(self) -> list[float]:
        first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self._high))
        return [10.0**exponent for exponent in range(first, last + 1)]


class _Linear:
    """Values from 0 to a largest -> pixels."""

    def __init__(self, largest: float, start: float, end: float) -> None:
        self._largest, self._start, self._end = largest, start, end

    def __call__(self, value: float) -> float:
        return self._start + value / self._largest * (self._end - self._start)


def _svg(title: str, parts: Sequence[str]) -> str:
    return (
        f'<svg class="chart" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}">'
        f"<title>{escape(title)}</title>{''.join(parts)}</svg>"
    )


def _axes(across: str, up: str) -> str:
    bottom, middle = _HEIGHT - _BOTTOM, _HEIGHT / 2
    return (
        f'<path class="axis" d="M{_LEFT} {_TOP}V{bottom}H{_WIDTH - _RIGHT}"/>'
        + _text((_LEFT + _WIDTH) / 2, _HEIGHT - 12, across, "middle")
        + f'<text transform="translate(18 {middle}) rotate(-90)" text-anchor="middle">{up}</text>'
    )


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<path class="{kind}" d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"/>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
