#!/usr/bin/env python3
"""Run TVM 0.18's own Relay tests under the old names, file by file, and count what passes.

    python -m scripts.conformance.relay_tests CHECKOUT                        # the files of DEFAULT
    python -m scripts.conformance.relay_tests CHECKOUT 'test_op_level*.py' test_vm.py
    python -m scripts.conformance.relay_tests CHECKOUT test_op_level2.py -k "conv or pool"
    python -m scripts.conformance.relay_tests CHECKOUT --results out  # resumes what out/ lacks
    python -m scripts.conformance.relay_tests CHECKOUT --results out --failed

CHECKOUT is a source tree of TVM 0.18; its files are read, none is copied.
"""

from __future__ import annotations

import pathlib
import sys

from scripts.conformance import external_tests

_PASSES = (
    *("alter_op_layout", "annotate_target", "auto_quantize", "canonicalize_cast"),
    *("combine_parallel_batch_matmul", "combine_parallel_conv2d", "combine_parallel_dense"),
    *("convert_op_layout", "dead_code_elimination", "defuse_ops", "dynamic_to_static"),
    *("eliminate_common_subexpr", "fast_math", "flatten_atrous_conv", "fold_constant"),
    *("fold_explicit_padding", "fold_scale_axis", "fuse_ops", "inline", "instrument"),
    *("legalize", "mac_count", "manager", "merge_compiler_regions", "merge_composite"),
    *("partition_graph", "qnn_legalize", "remove_unused_functions", "simplify_expr"),
    *("simplify_inference", "to_a_normal_form", "to_graph_normal_form"),
)
DEFAULT = (
    *(f"test_op_level{level}.py" for level in (1, 2, 3, 4, 5, 10)),
    *("test_op_qnn_*.py", "qnn/*.py"),
    *(f"test_pass_{name}.py" for name in _PASSES),
    *("test_to_mixed_precision.py", "test_dataflow_pattern.py", "test_ir_parser.py"),
    *("test_ir_text_printer.py", "test_expr_functor.py", "test_ir_nodes.py", "test_ir_op.py"),
    *("test_ir_bind.py", "test_ir_module.py", "test_any.py", "test_vm*.py"),
    *("test_backend_graph_executor.py", "test_external_codegen.py", "test_build_module.py"),
    *("test_auto_scheduler_task_extraction.py", "test_autotvm_task_extraction.py"),
    *("test_type_infer.py", "test_json_compact.py", "test_param_dict.py", "test_const.py"),
    *("test_cmp_op.py", "test_executor.py", "test_layer_count.py"),
    *("dyn/test_dynamic_op_level*.py", "test_analysis_*.py"),
)


def prepare(checkout: str) -> list[str]:
    """Install the old names of TVM."""
    import compiler.legacy

    compiler.legacy.install(everything=True)
    import tvm.testing.plugin  # Baton's, before the checkout's own is found below

    tvm.testing.__path__.append(f"{checkout}/python/tvm/testing")  # what several test files share
    return ["-p", "tvm.testing.plugin"]


SUITE = external_tests.Suite(
    script="scripts.conformance.relay_tests",
    description=__doc__,
    checkout="a source tree of TVM 0.18",
    folders=(pathlib.Path("tests/python/relay"), pathlib.Path("tests/python")),
    default=DEFAULT,
    prepare=prepare,
)

if __name__ == "__main__":
    sys.exit(external_tests.main(SUITE))
