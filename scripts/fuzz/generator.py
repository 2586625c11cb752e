"""A case: a random model with several sets of inputs, the same for the same seed and number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import defs

from . import values
from .draft import Draft
from .evaluate import EvaluationError, make_model
from .operators import MAKERS, available

OPSETS = range(7, 24)
ATTEMPTS = 60
"""Operators tried for one graph; most do not fit at once."""


@dataclass
class Case:
    """A model with static input shapes, sets of inputs by kind (see `values`), and op types."""

    model: onnx.ModelProto
    feeds: dict[str, dict[str, np.ndarray]]
    operators: tuple[str, ...] = field(default=())


def draw(seed: int, number: int, largest: int = 6, operators: Sequence[str] | None = None) -> Case:
    """Case `number` of the run that `seed` starts, of up to `largest` operators; all or some."""
    rng = np.random.default_rng([seed, number])
    opset = int(rng.choice(OPSETS))
    draft = Draft(rng, opset)
    wanted = int(rng.integers(1, largest + 1))
    names = [name for name in available(opset) if not operators or name in operators]
    if not names:
        names = list(available(opset))
    for _ in range(ATTEMPTS):
        name = names[int(rng.integers(len(names)))]
        before = Mark(draft)
        try:
            MAKERS[name](draft, name)
        except (EvaluationError, defs.SchemaError):
            before.restore()
            continue
        wanted -= 1
        if wanted <= 0:
            break
    return finish(draft)


class Mark:
    """What a draft was before an operator that did not work out."""

    def __init__(self, draft: Draft):
        self.draft = draft
        self.values = dict(draft.values)
        self.inputs = dict(draft.inputs)
        self.constants = set(draft.constants)
        self.nodes = len(draft.nodes)

    def restore(self) -> None:
        """Undo what was added since."""
        self.draft.values = self.values
        self.draft.inputs = self.inputs
        self.draft.constants = self.constants
        del self.draft.nodes[self.nodes :]


def finish(draft: Draft) -> Case:
    """The draft as a case; its outputs are the tensors that no node reads, and a few others."""
    from .evaluate import free_names

    read = {name for node in draft.nodes for name in free_names(node)}
    made = [name for node in draft.nodes for name in node.output if name]
    optional = {name for node in draft.nodes if node.op_type == "Optional" for name in node.output}
    made = [name for name in made if name not in optional]
    tensors = [name for name in made if isinstance(draft.values[name], np.ndarray)]
    outputs = [name for name in tensors if name not in read or draft.chance(0.1)] or tensors[-1:]
    inputs = {name: draft.values[name] for name in draft.inputs if name in read}
    constants = {name: draft.values[name] for name in draft.constants if name in read}
    model = make_model(draft.nodes, inputs, outputs, draft.opset, constants)
    roles = {name: draft.inputs[name] for name in inputs}
    feeds = values.feeds_of(draft.rng, roles, inputs)
    return Case(model, feeds, tuple(node.op_type for node in draft.nodes))
