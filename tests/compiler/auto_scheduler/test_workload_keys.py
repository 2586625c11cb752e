"""Keys of workloads compared."""

from __future__ import annotations

import json

import pytest

from compiler import auto_scheduler
from compiler.auto_scheduler.workload_keys import (
    calc_workload_dis_factor,
    decode_workload_key,
    get_func_name,
)

KEY = ["conv", [8, 3, 224], [0, 1], "float32"]


@pytest.mark.parametrize(
    ("other", "factor"),
    [
        (KEY, 1),
        (["conv", [1, 3, 112], [0, 1], "float32"], 16),
        (["conv", [8, 3, 224], [1, 1], "float32"], float("inf")),
        (["conv", [8, 3, 224], [0, 1], "int8"], float("inf")),
        (["conv", [8, 3, 223], [0, 1], "float32"], float("inf")),
        (["dense", *KEY[1:]], float("inf")),
        (KEY[:3], float("inf")),
    ],
)
def test_a_workload_is_a_multiple_of_one_that_divides_it(other, factor):
    pair = [decode_workload_key(json.dumps(key)) for key in (KEY, other)]
    assert calc_workload_dis_factor(*pair) == factor


def test_a_key_that_is_no_list_is_like_itself_alone():
    assert decode_workload_key("abc") == ("abc", None)
    assert calc_workload_dis_factor(("abc", None), ("abc", None)) == 1
    assert calc_workload_dis_factor(("abc", None), ("abd", None)) == float("inf")


def test_modules_that_ansor_had_are_attributes():
    assert auto_scheduler.measure.MeasureInput is auto_scheduler.MeasureInput
    assert auto_scheduler.utils.get_func_name is get_func_name
    assert auto_scheduler.cost_model.RandomModel is auto_scheduler.RandomModel
    assert auto_scheduler.MeasureErrorNo.NO_ERROR == 0
    assert auto_scheduler.HardwareParams(num_cores=2, target="llvm").num_cores == 2
