"""A library's report as one HTML page: its network, a roofline plot, schedules, memory.

The page is self-contained: a content security policy forbids it to load anything, and to run any
script but its own. Whatever comes from models and logs is escaped.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from compiler.partition.svg import Box, color, draw
from compiler.runtime import FactoryModule, foreign

from .charts import Point, live, memory_map, roofline
from .files import write_text
from .kernel_times import RUNTIME, Profile, gflops_of, report_of
from .vm_program import Program, read_program

if TYPE_CHECKING:
    from compiler.lowering.report import Kernel, Report

_LONGEST_RECORD = 4000  # characters

_STYLE = """
* { box-sizing: border-box; }
body { margin: 0; font: 14px system-ui, sans-serif; color: #222; display: grid; height: 100vh;
  grid: auto minmax(0, 1fr) / minmax(0, 1fr) 26rem; }
header { grid-column: 1 / 3; padding: .5rem 1rem; border-bottom: 1px solid #ccc; }
h1 { font-size: 1.2rem; margin: 0 0 .3rem; } h2 { font-size: 1rem; }
header p { margin: .2rem 0; }
nav button { font: inherit; padding: .2rem .8rem; }
nav button.chosen { background: #222; color: #fff; }
main, aside { overflow: auto; } main section { padding: 0 1rem; }
aside { border-left: 1px solid #ccc; padding: 0 1rem; }
section[hidden], article[hidden] { display: none; }
table { border-collapse: collapse; } td, th { padding: .15rem .6rem; text-align: left; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
tr { border-bottom: 1px solid #eee; } td.number { white-space: nowrap; }
dt { font-weight: bold; } dd { margin: 0 0 .4rem 1rem; overflow-wrap: anywhere; }
[data-kernel] { cursor: pointer; } tr.chosen { background: #fff3c4; }
.by-backend .node rect { fill: var(--backend, #eee); }
.by-weight .node rect { fill: var(--weight, #eee); }
.swatch { display: inline-block; width: 1em; height: 1em; border: 1px solid #555; }
.chart { max-width: 1200px; width: 100%; }
.chart .axis, .chart .roof { fill: none; stroke: #222; } .chart .roof { stroke-width: 2; }
.chart .grid { stroke: #ddd; } .chart .live { fill: none; stroke: #b00020; stroke-width: 1.5; }
.chart .mark { fill: #3b6ea5; fill-opacity: .45; stroke: #1c3f66; stroke-width: .5; }
.chart .mark.chosen { fill: #e0a100; fill-opacity: .9; }
"""

_SCRIPT = """
"use strict";
const all = (selector, within) => [...(within || document).querySelectorAll(selector)];
const sections = all("main section"), buttons = all("nav button");
function show(name) {
  sections.forEach(section => { section.hidden = section.id !== name; });
  buttons.forEach(button => button.classList.toggle("chosen", button.value === name));
}
buttons.forEach(button => button.addEventListener("click", () => show(button.value)));
function choose(kernel, origin) {
  all(".chosen[data-kernel]").forEach(each => each.classList.remove("chosen"));
  all("aside article").forEach(each => { each.hidden = each.dataset.of !== kernel; });
  const found = all("[data-kernel]").filter(each => each.dataset.kernel === kernel);
  found.forEach(each => each.classList.add("chosen"));
  if (!origin.closest("#network")) {
    const node = found.find(each => each.classList.contains("node"));
    if (node) node.scrollIntoView({block: "nearest", inline: "center"});
  }
}
document.addEventListener("click", event => {
  const item = event.target.closest("[data-kernel]");
  if (item && item.dataset.kernel !== "") choose(item.dataset.kernel, item);
});
const graph = document.querySelector("#graph"), svg = graph.querySelector("svg");
const width = svg.viewBox.baseVal.width, height = svg.viewBox.baseVal.height;
const zoom = document.getElementById("zoom");
function resize() {
  svg.setAttribute("width", width * zoom.value / 100);
  svg.setAttribute("height", height * zoom.value / 100);
}
zoom.addEventListener("input", resize);
document.getElementById("colors").addEventListener("change", event => {
  graph.className = event.target.value;
});
document.getElementById("search").addEventListener("input", event => {
  const text = event.target.value.toLowerCase();
  const named = node => node.querySelector("title").textContent.toLowerCase();
  const found = text ? all(".node").filter(node => named(node).includes(text)) : [];
  all(".node").forEach(node => node.classList.toggle("chosen", found.includes(node)));
  if (found.length) found[0].scrollIntoView({block: "center", inline: "center"});
});
show("network");
const pane = document.querySelector("main").clientWidth - 40;
zoom.value = Math.min(100, Math.max(40, Math.floor(100 * pane / width)));
resize();
"""


@dataclass(frozen=True)
class Machine:
    """What a machine can do at best, measured on as many threads as the kernels.

    Attributes
    ----------
    gflops : float
        10^9 floating-point operations per second, from registers.
    gbytes : float
        10^9 bytes per second, read from memory.
    """

    gflops: float
    gbytes: float


def write_page(
    path: Path,
    library: FactoryModule,
    title: str,
    *,
    profile: Profile | None = None,
    machine: Machine | None = None,
    logs: Sequence[str] = (),
) -> None:
    """Write the page of a library.

    Parameters
    ----------
    path : Path
    library : FactoryModule
        Built or loaded.
    title : str
        The model's name.
    profile : Profile, optional
        Times of its kernels.
    machine : Machine, optional
        The roof of the roofline plot.
    logs : sequence of str
        Files that may hold the records which schedules come from.

    Raises
    ------
    LoadError
        The library's program can't be read.
    ExportError
        The file can't be written.
    """
    report, program = report_of(library), read_program(library)
    page = Page(
        title,
        report,
        program,
        [each.name for each in library.metadata.inputs],
        [each.name for each in library.metadata.outputs],
        profile,
        machine,
        _records({kernel.source for kernel in report.kernels}, logs),
        _foreign(library, program),
    )
    write_text(path, page.html())


def _foreign(library: FactoryModule, program: Program) -> dict[int, str]:
    """The back ends of the calls that run in something other than TVM."""
    backends = {each["runtime"]: each["backend"] for each in library.metadata.partition.values()}
    found = {}
    for index, call in enumerate(program.calls):
        if call.kernel == foreign.RUN and call.weights:
            code = library.params[library.metadata.params[call.weights[0]].name]
            header, _ = foreign.split_header(code.numpy().tobytes())
            runtime = str(header.get("runtime", "foreign"))
            found[index] = str(backends.get(runtime, runtime))
    return found


def _records(sources: Iterable[str], logs: Sequence[str]) -> dict[str, str]:
    """The lines of the logs that are sources, such as "topi:tuned.log:12"."""
    wanted: dict[str, dict[int, str]] = {}
    for source in sources:
        place, _, line = source.rpartition(":")
        log = Path(place.partition(":")[2]).name
        if line.isdecimal() and log:
            wanted.setdefault(log, {})[int(line)] = source
    found = {}
    for log in logs:
        lines = wanted.get(Path(log).name)
        if lines and Path(log).is_file():
            with open(log, encoding="utf-8", errors="replace") as file:
                for number, text in enumerate(itertools.islice(file, max(lines)), 1):
                    if number in lines:
                        found[lines[number]] = text[:_LONGEST_RECORD]
    return found


@dataclass
class Page:
    """What a page shows.

    Attributes
    ----------
    inputs, outputs : sequence of str
        The library's names.
    records : mapping of str to str
        Lines of logs, by the sources of schedules.
    foreign : mapping of int to str
        Back ends of calls that are not kernels of the report, by their index in the program.
    """

    title: str
    report: Report
    program: Program
    inputs: Sequence[str]
    outputs: Sequence[str]
    profile: Profile | None = None
    machine: Machine | None = None
    records: Mapping[str, str] = field(default_factory=dict)
    foreign: Mapping[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        kernels = self.report.kernels
        self._times = {each.name: each for each in self.profile.kernels} if self.profile else {}
        self._number = {kernel.name: index for index, kernel in enumerate(kernels)}
        self._backends = sorted({each.backend for each in kernels} | {*self.foreign.values()})

    def html(self) -> str:
        """The document."""
        views = {
            "network": ("Network", self._network()),
            **({"roofline": ("Roofline", self._roofline())} if self.profile else {}),
            "memory": ("Memory", self._memory()),
            "kernels": ("Kernels", self._kernels()),
            "build": ("Build", self._build()),
        }
        buttons = " ".join(
            f'<button value="{key}">{name}</button>' for key, (name, _) in views.items()
        )
        sections = "\n".join(
            f'<section id="{key}"><h2>{name}</h2>{body}</section>'
            for key, (name, body) in views.items()
        )
        digest = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
        policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
        articles = "\n".join(
            self._article(index, kernel) for index, kernel in enumerate(self.report.kernels)
        )
        return f"""<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{escape(self.title)}</title>
<style>{_STYLE}</style></head>
<body>
<header><h1>{escape(self.title)}</h1>{self._summary()}<nav>{buttons}</nav></header>
<main>
{sections}
</main>
<aside><p>Choose a kernel to see its schedule.</p>
{articles}
</aside>
<script>{_SCRIPT}</script>
</body>
</html>
"""

    def _summary(self) -> str:
        report = self.report
        lines = [
            f"{len(report.kernels)} kernels, {len(self.program.calls)} calls for {report.target}, "
            f"opt_level {report.opt_level}, precision {report.precision}"
        ]
        outside = self._times.get(RUNTIME)
        if self.profile:
            lines.append(
                f"one inference takes {self.profile.milliseconds:.3f} ms; medians of "
                f"{self.profile.repeats} inferences"
                + (f"; {outside.share:.1%} of it outside of kernels" if outside else "")
            )
        return "".join(f"<p>{escape(line)}</p>" for line in lines)

    def _network(self) -> str:
        boxes = [Box(name, f"input {name}", "input") for name in self.inputs]
        read: list[list[int]] = [[] for _ in boxes]
        first = len(boxes)
        for index, call in enumerate(self.program.calls):
            boxes.append(self._box(call.kernel, self.foreign.get(index, "")))
            read.append([*sorted(call.inputs), *(first + each for each in sorted(call.after))])
        for name, makers in zip(self.outputs, self.program.results):
            boxes.append(Box(name, f"output {name}", "input"))
            read.append([first + each for each in sorted(makers)])
        legend = " ".join(
            f'<span><span class="swatch" style="background: {self._backend_color(name)}"></span> '
            f"{escape(name or 'this build')}</span>"
            for name in self._backends
        )
        weight = "time" if self.profile else "operations"
        first_view = "by-backend" if len(self._backends) > 1 and not self.profile else "by-weight"
        pick = {"by-weight": "", "by-backend": "", first_view: " selected"}
        return (
            '<p><label>Colors <select id="colors">'
            f'<option value="by-weight"{pick["by-weight"]}>{weight} of a call</option>'
            f'<option value="by-backend"{pick["by-backend"]}>back end</option></select></label> '
            '<label>Zoom <input id="zoom" type="range" min="10" max="200" value="100"></label> '
            '<label>Find <input id="search" type="search"></label></p>'
            f"<p>Back ends: {legend}</p>"
            f'<div id="graph" class="{first_view}">{draw(boxes, read, self.title)}</div>'
        )

    def _box(self, name: str, foreign_backend: str) -> Box:
        kernel = self._kernel_of(name)
        if kernel is None:
            label = foreign_backend or name
            style = f"--backend: {self._backend_color(label)}" if foreign_backend else ""
            return Box(label, f"{name}: {label}", style=style, data={"kernel": ""})
        largest = max(map(self._weight, self.report.kernels))
        part = self._weight(kernel) / largest if largest else 0.0
        return Box(
            name,
            f"{name}\n{' '.join(kernel.operators)}\n{self._one_line(kernel)}",
            style=f"--backend: {self._backend_color(kernel.backend)}; "
            f"--weight: hsl({50 - 45 * part:.0f}, 90%, {94 - 39 * part:.0f}%)",
            data={"kernel": str(self._number[name])},
        )

    def _kernel_of(self, name: str) -> Kernel | None:
        index = self._number.get(name)
        return None if index is None else self.report.kernels[index]

    def _backend_color(self, backend: str) -> str:
        return color(self._backends.index(backend)) if backend else "#dfe7ef"

    def _weight(self, kernel: Kernel) -> float:
        """What one call costs: milliseconds if they were measured, else operations."""
        time = self._times.get(kernel.name)
        if self.profile:
            return time.milliseconds / time.calls if time else 0.0
        return kernel.flops or 0.0

    def _one_line(self, kernel: Kernel) -> str:
        time = self._times.get(kernel.name)
        measured = f", {time.milliseconds:.3f} ms in {time.calls} calls" if time else ""
        return f"{kernel.implementation}, {kernel.algorithm}, {kernel.source}{measured}"

    def _roofline(self) -> str:
        points = []
        for name, time in self._times.items():
            kernel = self._kernel_of(name)
            if kernel and kernel.flops and kernel.bytes and time.gflops:
                label = f"{name}: {gflops_of(time)} GFLOP/s, {time.gbytes:.1f} GB/s"
                intensity = kernel.flops / kernel.bytes
                points.append(Point(self._number[name], intensity, time.gflops, time.share, label))
        peak, memory = (self.machine.gflops, self.machine.gbytes) if self.machine else (None, None)
        left = len(self.report.kernels) - len(points)
        roof = (
            "The lines are what this machine does at best, measured just before."
            if self.machine
            else "There is no roof: the machine's best is measured for its CPU alone."
        )
        return (
            f"{roofline(points, peak, memory)}<p>The larger a point, the more of the time its "
            f"kernel takes. {roof} Kernels without known floating-point operations, which are not "
            f"shown: {left}. What is above the memory's line has its operands in a cache.</p>"
        )

    def _memory(self) -> str:
        program, report = self.program, self.report
        unknown = sum(each is None for each in program.storages)
        more = f" {unknown} more have a size that only running tells." if unknown else ""
        kernels = [self._number.get(call.kernel) for call in program.calls]
        reserved = sum(each or 0 for each in program.storages)
        return (
            f"{memory_map(program, kernels)}<p>Each rectangle is a tensor between kernels. The red "
            f"line is the sum of those that live, at most {max(live(program), default=0)} bytes; "
            f"{reserved} bytes are reserved in {len(program.storages) - unknown} pieces.{more} "
            f"Packed parameters take {report.weights_bytes} bytes besides.</p>"
        )

    def _kernels(self) -> str:
        header = ("kernel", "operators", "implementation", "algorithm", "schedule from", "calls")
        numbers = ("MFLOP", "KB", *(("ms", "share", "GFLOP/s", "GB/s") if self.profile else ()))
        rows = "\n".join(
            f'<tr data-kernel="{index}">{self._cells(kernel)}</tr>'
            for index, kernel in enumerate(self.report.kernels)
        )
        head = "".join(f"<th>{name}</th>" for name in (*header, *numbers))
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"

    def _cells(self, kernel: Kernel) -> str:
        source = kernel.source + (f" [{kernel.backend}]" if kernel.backend else "")
        texts = (kernel.name, " ".join(kernel.operators), kernel.implementation, kernel.algorithm)
        numbers = [str(kernel.calls), kernel.megaflops, f"{kernel.bytes / 1e3:.0f}"]
        time = self._times.get(kernel.name)
        if time:
            numbers += [f"{time.milliseconds:.3f}", f"{time.share:.1%}", gflops_of(time)]
            numbers.append(f"{time.gbytes:.1f}")
        return "".join(f"<td>{escape(text)}</td>" for text in (*texts, source)) + "".join(
            f'<td class="number">{escape(text)}</td>' for text in numbers
        )

    def _article(self, index: int, kernel: Kernel) -> str:
        time = self._times.get(kernel.name)
        facts = {
            "operators": " ".join(kernel.operators),
            "operands and results": " ".join(time.shapes) if time else "",
            "back end": kernel.backend or "this build",
            "target": kernel.target,
            "implementation": kernel.implementation,
            "algorithm": kernel.algorithm,
            "multiplies": kernel.multiplies,
            "schedule from": kernel.source,
            "config": kernel.config,
            "record": self.records.get(kernel.source, ""),
            "remark": kernel.remark,
            "of one call": f"{kernel.megaflops} MFLOP, {kernel.bytes} bytes",
            "calls": str(kernel.calls),
        }
        if time:
            facts["measured"] = (
                f"{time.milliseconds:.3f} ms in an inference, {time.share:.1%} of it; "
                f"{gflops_of(time) or 'no'} GFLOP/s, {time.gbytes:.1f} GB/s"
            )
        entries = "".join(
            f"<dt>{name}</dt><dd>{escape(value)}</dd>" for name, value in facts.items() if value
        )
        return (
            f'<article data-of="{index}" hidden><h2>{escape(kernel.name)}</h2><dl>{entries}</dl>'
            "</article>"
        )

    def _build(self) -> str:
        rows = "".join(
            f'<tr><td>{escape(name)}</td><td class="number">{seconds:.3f}</td></tr>'
            for name, seconds in self.report.seconds.items()
        )
        found = [f"found in the cache: {self.report.cache}"] if self.report.cache else []
        lines = "".join(
            f"<p>{escape(line)}</p>" for line in (*found, self.report.sizes, *self.report.notes)
        )
        return f"{lines}<table><tr><th>step</th><th>seconds</th></tr>{rows}</table>"
