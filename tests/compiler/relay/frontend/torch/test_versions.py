"""What the table of PyTorch's versions says is so in the installed one."""

from __future__ import annotations

import importlib
import logging
import pkgutil

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: the extra 'torch'")
from compiler.relay.frontend.torch import call, versions  # noqa: E402


def test_the_exporter_knows_the_operators_that_are_exported() -> None:
    if ".".join(torch.__version__.split(".")[:2]) not in versions.TESTED:
        pytest.skip(f"imports are not tested with PyTorch {torch.__version__}")
    exporter = importlib.import_module("torch.onnx._internal.torchscript_exporter")
    for module in pkgutil.iter_modules(exporter.__path__):
        if module.name.startswith("symbolic_"):
            importlib.import_module(f"{exporter.__name__}.{module.name}")
    registry = importlib.import_module(f"{exporter.__name__}.registration").registry
    known = {
        name.removeprefix("aten::")
        for name in registry.all_functions()
        if name.startswith("aten::") and registry.is_registered_op(name, call.OPSET)
    }
    assert known == versions.EXPORTED


def test_other_versions_are_warned_of_once(monkeypatch, caplog) -> None:
    monkeypatch.setattr(versions, "TESTED", ("1.0",))
    versions.warn_unless_tested.cache_clear()
    with caplog.at_level(logging.WARNING):
        call.Caller({})
        call.Caller({})
    versions.warn_unless_tested.cache_clear()
    assert [r.getMessage().count("is not one of those") for r in caplog.records] == [1]
