"""Names that modules of older TVM versions passed on, by attribute or star import."""

from __future__ import annotations

import pytest
import tvm

from compiler import legacy
from compiler.errors import LegacyImportError


def test_modules_answer_names_that_they_imported_themselves():
    with legacy.installed():
        from tvm.contrib import graph_runtime

        assert graph_runtime.graph_executor.GraphModule is graph_runtime.GraphModule
        assert tvm.ir.container.Map is not None


def test_star_imports_bring_what_a_module_imported():
    scope: dict[str, object] = {}
    with legacy.installed():
        exec("from tvm.relay.dataflow_pattern import *", scope)
        from tvm import relay

        assert scope["Expr"] is relay.Expr
        assert scope["wildcard"] is relay.dataflow_pattern.wildcard
        assert {"Callable", "Dict", "List", "Optional", "Op", "tvm"} <= set(scope)
        with pytest.raises(LegacyImportError, match="public functions"):
            scope["ffi"].match()  # type: ignore[attr-defined]
