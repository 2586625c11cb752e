"""C and C++ sources that code generators return, in the conventions of TVM 0.8 to 0.18."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm

from compiler import relay
from compiler.errors import BuildError
from compiler.relay import dialect, transform
from compiler.runtime.graph_executor import GraphModule
from compiler.runtime.load import load_module

TYPED = r"""
#include <tvm/runtime/c_runtime_api.h>
#include <tvm/runtime/packed_func.h>
#include <dlpack/dlpack.h>
#include <cmath>
extern "C" int NAME_wrapper_(DLTensor* x, DLTensor* out) {
  for (int i = 0; i < 6; ++i) ((float*)out->data)[i] = std::tanh(((float*)x->data)[i]) + PLUS;
  return 0;
}
TVM_DLL_EXPORT_TYPED_FUNC(NAME, NAME_wrapper_);
"""
PACKED = r"""
#include <tvm/runtime/packed_func.h>
#include <tvm/runtime/registry.h>
#include <cmath>
using namespace tvm::runtime;
static void packed(TVMArgs args, TVMRetValue* rv) {
  ICHECK_EQ(args.size(), 2);
  DLTensor* x = args[0];
  DLTensor* out = args[1];
  for (int i = 0; i < 6; ++i) ((float*)out->data)[i] = std::tanh(((float*)x->data)[i]) + PLUS;
  *rv = 0;
}
TVM_DLL_EXPORT_PACKED_FUNC(NAME, packed);
"""
PLAIN_C = r"""
#include <stdio.h>
#include <string.h>
#include <math.h>
#include <tvm/runtime/c_runtime_api.h>
#include <tvm/runtime/c_backend_api.h>
#ifdef __cplusplus
extern "C" {
#endif
TVM_DLL int32_t NAME(TVMValue* args, int* type_code, int num_args, TVMValue* out_value,
                     int* out_type_code) {
  DLTensor* x = (DLTensor*)(((TVMValue*)args)[0].v_handle);
  DLTensor* out = (DLTensor*)(((TVMValue*)args)[1].v_handle);
  if (num_args != 2 || x->ndim != 2) return 1;
  for (int64_t i = 0; i < 6; ++i) ((float*)out->data)[i] = tanhf(((float*)x->data)[i]) + PLUS;
  return 0;
}
#ifdef __cplusplus
}
#endif
"""
X = np.random.default_rng(0).standard_normal((2, 3)).astype("float32")


def partitioned(name: str, generate: Any) -> tvm.IRModule:
    """x -> exp(tanh(x)), where the compiler has the tanh."""
    tvm.register_global_func(f"relay.ext.{name}", generate, override=True)
    if not dialect.operator("tanh").has_attr(f"target.{name}"):
        tvm.ir.register_op_attr(dialect.operator("tanh").name, f"target.{name}", lambda _: True)
    x = relay.var("x", shape=(2, 3))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.exp(relay.tanh(x))))
    for change in (transform.AnnotateTarget(name), transform.PartitionGraph()):
        mod = change(mod)
    return mod


def source_module(source: str, kind: str, name: str, constants: Any = ()) -> Any:
    return tvm.get_global_func("runtime.CSourceModuleCreate")(source, kind, [name], [*constants])


@pytest.mark.parametrize(
    ("source", "kind"),
    [(TYPED, "cc"), (PACKED, "cc"), (PLAIN_C, "c")],
    ids=["typed", "packed", "c"],
)
def test_a_source_runs_in_this_process_and_after_an_export(
    source: str, kind: str, tmp_path: Path
) -> None:
    for plus in (1, 2) if source == TYPED else (1,):  # another source for the same module

        def generate(function: Any, plus: int = plus) -> Any:
            symbol = str(function.attrs["global_symbol"])
            text = source.replace("NAME", symbol).replace("PLUS", str(plus))
            return source_module(text, kind, symbol)

        library = relay.build(partitioned(f"c_{len(source)}", generate), "llvm")
        library.export_library(tmp_path / f"library{plus}.so")
        for each in (library, load_module(tmp_path / f"library{plus}.so")):
            module = GraphModule(each["default"](tvm.cpu()))
            module.run(x=X)
            got = module.get_output(0).numpy()
            np.testing.assert_allclose(got, np.exp(np.tanh(X) + plus), rtol=1e-5)


def test_the_compilers_errors_appear_in_the_build() -> None:
    def generate(function: Any) -> Any:
        symbol = str(function.attrs["global_symbol"])
        return source_module("int f() { return undeclared_name; }", "cc", symbol)

    with pytest.raises(BuildError, match=r"(?s)c_wrong_main_0.*undeclared_name") as error:
        relay.build(partitioned("c_wrong", generate), "llvm")
    assert "error:" in str(error.value)


def test_a_source_without_the_function_is_refused() -> None:
    def generate(function: Any) -> Any:
        return source_module("int f() { return 0; }", "cc", str(function.attrs["global_symbol"]))

    with pytest.raises(BuildError, match="defines no function 'tvmgen_default_c_other_main_0'"):
        relay.build(partitioned("c_other", generate), "llvm")


def test_a_source_that_waits_for_constants_is_refused() -> None:
    def generate(function: Any) -> Any:
        return source_module("", "cc", str(function.attrs["global_symbol"]), ["const_0"])

    with pytest.raises(BuildError, match="constants by name"):
        relay.build(partitioned("c_constants", generate), "llvm")


def test_a_function_that_returns_an_error_raises_it() -> None:
    def generate(function: Any) -> Any:
        symbol = str(function.attrs["global_symbol"])
        text = PLAIN_C.replace("NAME", symbol).replace("x->ndim != 2", "1").replace("PLUS", "0")
        return source_module(text, "c", symbol)

    library = relay.build(partitioned("c_fails", generate), "llvm")
    module = GraphModule(library["default"](tvm.cpu()))
    with pytest.raises(Exception, match="tvmgen_default_c_fails_main_0 returned 1"):
        module.run(x=X)
