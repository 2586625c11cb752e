from __future__ import annotations

from tvm.target import Target

from schedules.conv2d import Conv2dWorkload
from scripts.bench import schedule_choices

CPU = Target({"kind": "llvm", "mcpu": "znver5", "num-cores": 1})
LAYER = Conv2dWorkload(
    1, 64, 28, 28, 64, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), constant_weight=True
)


def test_the_choice_is_held_against_other_implementations_and_configs(capsys):
    made = schedule_choices.comparison("nn.conv2d", LAYER, CPU, configs=2)
    names = [candidate.task.name for candidate in made.candidates]
    assert names[0] == "conv2d_winograd.x86"
    assert "conv2d_direct.x86" in names[1:]
    assert names.count("conv2d_winograd.x86") == 3
    made.seconds = [1.2, *[1.0] * (len(names) - 1)]
    row = schedule_choices.row_of("nn.conv2d", LAYER, CPU, made)
    assert row["over_best"] == 1.2
    assert row["candidates"][0]["cycles"] < next(
        each["cycles"] for each in row["candidates"] if "direct" in each["implementation"]
    )
    schedule_choices.show([row, {**row, "over_best": 1.0}])
    assert "1 of 2 choices within 5 %" in capsys.readouterr().out
