"""`baton extract-tasks`: the kernels of a model that a search would tune."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .compile import BuildOptions, import_model
from .console import Steps, show, table
from .files import write_text

if TYPE_CHECKING:
    from compiler.auto_scheduler.task import SearchTask


@dataclass(frozen=True)
class Extracted:
    """The tasks of a model."""

    tasks: list[SearchTask]
    files: list[Path]  # one TIR file per task; empty if none were asked for

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists and numbers."""
        return {
            "tasks": [
                {
                    "workload_key": task.workload_key,
                    "description": task.desc,
                    "weight": task.weight,
                    "flops": task.flop_ct,
                    "target": str(task.target.kind.name),
                    "file": str(self.files[index]) if self.files else None,
                }
                for index, task in enumerate(self.tasks)
            ]
        }


def extract_model_tasks(
    model: Path,
    build: BuildOptions,
    *,
    include_simple: bool = False,
    folder: Path | None = None,
    steps: Steps | None = None,
) -> Extracted:
    """Find a model's tasks; with `folder`, write each one's unscheduled TIR there."""
    from compiler import auto_scheduler

    steps = steps or Steps()
    mod, params = import_model(model, build, steps)
    with steps.step("extract tasks"):
        tasks, _ = auto_scheduler.extract_tasks(
            mod, params, build.target, build.target_host, include_simple_tasks=include_simple
        )
    files = []
    for index, task in enumerate(tasks if folder is not None else ()):
        assert folder is not None
        name = re.sub(r"\W+", "_", task.desc.split(" ")[0])
        files.append(folder / f"{index:03d}_{name}.py")
        folder.mkdir(parents=True, exist_ok=True)
        write_text(files[-1], f"# {task.desc}\n# {task.workload_key}\n{task.func.script()}\n")
    return Extracted(tasks, files)


def _megaflops(task: SearchTask) -> str:
    return "unknown" if task.flop_ct is None else f"{task.flop_ct * task.weight / 1e6:.1f}"


def show_extracted(extracted: Extracted) -> None:
    """Print a line for each task."""
    rows = [
        (str(index), task.desc, str(task.weight), _megaflops(task))
        for index, task in enumerate(extracted.tasks)
    ]
    show(table(("ID", "kernel", "calls", "MFLOP in all"), rows, numbers=2))
    calls = sum(task.weight for task in extracted.tasks)
    show(f"{len(extracted.tasks)} tasks, {calls} calls")
