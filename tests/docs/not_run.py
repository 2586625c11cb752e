"""What the pages show and their test does not run, with the reason."""

from __future__ import annotations

PAGES_ELSEWHERE = {"add_an_operator.md": "test_add_an_operator.py"}
"""Pages whose code another test runs."""

COMMANDS = {
    "baton bench": ("measures for half a minute", "compiler/cli/test_bench.py"),
    "baton compile model.onnx --backend onnxruntime,openvino --placement": (
        "measures for a minute, and needs OpenVINO",
        "compiler/cli/test_compile.py",
    ),
    "baton compile model.onnx -o model-arm.so": (
        "needs a cross compiler",
        "compiler/runtime/test_export.py",
    ),
    "baton compile models-q/": ("reads a large model", "compiler/cli/test_compile.py"),
    "baton convert-log --metaschedule": (
        "reads a database of MetaSchedule's",
        "compiler/auto_scheduler/test_metaschedule.py",
    ),
    "baton partition model.onnx --backend mypart --plugin ./libmypart.so": (
        "reads what a C++ compiler made",
        "compiler/mxnet/test_library.py",
    ),
    "baton partitioner build": ("compiles C++", "compiler/mxnet/test_library.py"),
    "baton profile models/": ("reads a large model", "compiler/cli/test_profile.py"),
    "baton profile models-q/": ("reads a large model", "compiler/cli/test_profile.py"),
    "baton runtime build": ("compiles C++", "compiler/runtime/packaging/test_cpp_runtime.py"),
    "baton tune": ("searches for minutes", "compiler/cli/test_tune.py"),
}
"""Starts of command lines that are only parsed: why, and the test that runs such a command."""

BLOCKS = {
    ("docs/dynamic_shapes.md", "needs a decoder"),
    ("docs/auto_scheduler_tuning.md", "a script of its own, which measuring processes import"),
    ("docs/auto_scheduler_tuning.md", "measures for minutes"),
    ("docs/deployment.md", "wants a server"),
    ("docs/how_to/another_cpu.md", "needs a cross compiler"),
    ("docs/how_to/gpu.md", "needs a GPU"),
    ("docs/how_to/gpu.md", "needs nvcc"),
    ("docs/how_to/pytorch.md", "PyTorch is not installed"),
    ("docs/partitioner.md", "measures for a minute"),
    ("docs/pytorch.md", "PyTorch is not installed"),
}
"""Pages with Python blocks that may be skipped, and the reason in front of the block."""
