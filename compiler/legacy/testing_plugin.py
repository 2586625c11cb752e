"""`tvm.testing.plugin`: the pytest plugin of TVM 0.18's tests; gives them `target` and `dev`."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
import tvm

from . import testing


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marks of `tvm.testing.requires_*`."""
    for name in testing.FEATURES:
        config.addinivalue_line("markers", f"{name}: needs {name}")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the option of tests that run a C++ program."""
    parser.addoption("--gtest_args", action="store", default="")


@pytest.fixture
def dev(target: Any) -> Any:
    """The device of the target that the test runs for."""
    return tvm.device(testing.kind_of(target))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test for each group of parameters, and for each target that it takes."""
    _with_values_that_belong_together(metafunc)
    if "target" in metafunc.fixturenames:
        _with_targets(metafunc)
    if "gtest_args" in metafunc.fixturenames:
        metafunc.parametrize("gtest_args", [metafunc.config.option.gtest_args])


def _with_values_that_belong_together(metafunc: pytest.Metafunc) -> None:
    groups: dict[int, list[tuple[str, Any]]] = defaultdict(list)
    for name, definitions in metafunc.definition._fixtureinfo.name2fixturedefs.items():
        function = definitions[-1].func
        if hasattr(function, "parametrize_group"):
            groups[function.parametrize_group].append((name, function))
    for members in groups.values():
        names = [name for name, _ in members]
        values = zip(*(function.parametrize_values for _, function in members))
        metafunc.parametrize(names, list(values), indirect=True, ids=members[0][1].parametrize_ids)


def _with_targets(metafunc: pytest.Metafunc) -> None:
    """Parametrize over targets, or mark the targets that a test names with what they need."""
    marks = list(metafunc.definition.iter_markers("parametrize"))
    named = [mark for mark in marks if "target" in _names(mark.args[0])]
    if not named:
        excluded = getattr(metafunc.function, "tvm_excluded_targets", ())
        chosen = [each for each in testing.targets() if testing.kind_of(each) not in excluded]
        marked = [_marked(metafunc, each, (each,), ()) for each in chosen]
        metafunc.definition.add_marker(pytest.mark.parametrize("target", marked, scope="session"))
    for mark in named:
        names, values = _names(mark.args[0]), mark.args[1]
        if isinstance(values, list):
            values[:] = [_with_target_marks(metafunc, names, value) for value in values]


def _names(names: Any) -> list[str]:
    parts = names.split(",") if isinstance(names, str) else names
    return [part.strip() for part in parts if part.strip()]


def _with_target_marks(metafunc: pytest.Metafunc, names: list[str], value: Any) -> Any:
    marks: tuple[Any, ...] = ()
    if isinstance(value, type(pytest.param())):
        value, marks = value.values, tuple(value.marks)
    elif len(names) == 1:
        value = (value,)
    return _marked(metafunc, value[names.index("target")], value, marks)


def _marked(metafunc: pytest.Metafunc, target: Any, values: Any, marks: Any) -> Any:
    """Values of parameters, skipped where the target does not run, failing where it should."""
    kind = testing.kind_of(target)
    added = testing.FEATURES[kind].marks() if kind in testing.FEATURES else []
    if kind in getattr(metafunc.function, "tvm_known_failing_targets", ()):
        added.append(pytest.mark.xfail(reason=f"known to fail for {kind}"))
    return pytest.param(*values, marks=[*marks, *added])
