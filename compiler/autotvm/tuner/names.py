"""Tuners by the names that tuning scripts use."""

from __future__ import annotations

from typing import Any

from ...errors import BatonError
from ..task import Task
from .base import Tuner
from .droplet_tuner import DropletTuner
from .ga_tuner import GATuner
from .index_tuner import GridSearchTuner, RandomTuner
from .xgb_tuner import FEATURES, XGBTuner

NAMES = (
    "xgb",
    "xgb_knob",
    "xgb_itervar",
    "xgb_curve",
    "xgb_rank",
    "ga",
    "random",
    "gridsearch",
    "droplet",
)


def make_tuner(name: str, task: Task, **options: Any) -> Tuner:
    """The tuner that scripts call `name`.

    `name`: "random", "gridsearch", "ga", "droplet", or "xgb" with an optional "_rank" or
    "_rank_binary" and an optional feature type: "xgb_knob", "xgb_rank_curve". "xgb" alone looks at
    knobs. Raises BatonError: there is no such tuner.
    """
    simple: dict[str, Any] = {
        "random": RandomTuner,
        "gridsearch": GridSearchTuner,
        "ga": GATuner,
        "droplet": DropletTuner,
    }
    if name in simple:
        return simple[name](task, **options)
    kind, *words = name.replace("-", "_").split("_")
    loss = "reg"
    if words[:1] == ["rank"]:
        loss, words = "rank", words[1:]
        if words[:1] == ["binary"]:
            loss, words = "rank-binary", words[1:]
    feature = words[0] if words else "knob"
    if kind != "xgb" or len(words) > 1 or feature not in FEATURES:
        raise BatonError(f"tuner {name!r} is not known; there are {', '.join(NAMES)}")
    return XGBTuner(task, feature_type=feature, loss_type=loss, **options)
