"""Commands of the pages that `make journey` skips, each with the reason."""

from __future__ import annotations

PAGES_ELSEWHERE = {"add_an_operator.md": "test_add_an_operator.py"}
"""Pages whose code another test runs."""

COMMANDS = {
    "baton bench": ("measures for half a minute", "compiler/cli/test_bench.py"),
    "baton cache clear": ("empties the cache", "compiler/cli/test_cache.py"),
    "baton compile model.onnx --backend onnxruntime,openvino --placement fastest": (
        "measures for a minute, and needs OpenVINO",
        "compiler/cli/test_compile.py",
    ),
    "baton compile model.onnx -o model-arm.so": (
        "needs a cross compiler",
        "compiler/runtime/test_export.py",
    ),
    "baton diff baton baton": ("builds a dozen times", "compiler/cli/test_diff.py"),
    "baton run old_script.py": ("is a reader's script", "compiler/cli/test_run.py"),
    "baton runtime build": ("compiles C++", "compiler/runtime/packaging/test_cpp_runtime.py"),
    "baton tune model.onnx --tuner auto_scheduler --log tuned.json --target": (
        "needs other machines",
        "compiler/cli/test_tune.py",
    ),
}
"""Starts of commands that the journey only parses: why, and the test that runs such a command."""

BLOCKS = {
    ("docs/dynamic_shapes.md", "needs a decoder"),
    ("docs/deployment.md", "wants a server"),
    ("docs/how_to/another_cpu.md", "needs a cross compiler"),
    ("docs/how_to/gpu.md", "needs a GPU"),
    ("docs/how_to/gpu.md", "needs nvcc"),
    ("docs/how_to/pytorch.md", "PyTorch is not installed"),
    ("docs/pytorch.md", "PyTorch is not installed"),
}
"""Pages with Python blocks that may be skipped, and the reason in front of the block."""
