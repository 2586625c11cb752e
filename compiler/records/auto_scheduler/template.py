"""Templates of the schedule library inside auto_scheduler records: which one, with which knobs.

A kernel need not keep TOPI's plain compute: the library may compute it in blocked layouts, by
Winograd's method, or with a packed weight. Such a record names an AutoTVM task and its config
instead of schedule primitives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from schedules.config import ConfigEntity

from ..autotvm.workload import digest, normalize, to_tuple

Query = Callable[[Any, tuple], ConfigEntity | None]


@dataclass(frozen=True)
class Template:
    """An implementation of the schedule library with its knobs set."""

    task: str  # its name, which is that of the AutoTVM task
    args: tuple[Any, ...]  # arguments of the task
    entity: list[Any]  # the knobs as AutoTVM records have them: [name, kind, value] each

    def config(self, source: str, cost: float) -> ConfigEntity:
        """The knobs. `source`: the record's, for the build's report. `cost`: seconds per run."""
        return ConfigEntity.from_entity(self.entity, source, False, cost)

    def query(self, source: str, cost: float) -> Query:
        """Query function for implementation selection: the config for this task, else None."""
        wanted, config = digest((self.task, *self.args)), self.config(source, cost)
        return lambda _, workload: config if digest(workload) == wanted else None

    def to_json(self) -> dict[str, Any]:
        return {"task": self.task, "args": normalize(self.args), "entity": self.entity}

    @staticmethod
    def from_json(row: Mapping[str, Any]) -> Template:
        """Read the field `template`; KeyError, TypeError or ValueError for another layout."""
        if not isinstance(row["args"], list):
            raise TypeError("arguments of a template are not a list")
        template = Template(str(row["task"]), to_tuple(row["args"]), list(row["entity"]))
        template.config("", 0.0)  # every knob is one
        return template
