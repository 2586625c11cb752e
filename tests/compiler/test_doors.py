"""What README, the docs and scripts import by name: these paths stay."""

from __future__ import annotations

import importlib

import pytest

DOORS = {
    "compiler": "autotvm auto_scheduler relay PassContext __version__",
    "compiler.autotvm": "apply_history_best apply_graph_best measure_option LocalBuilder "
    "LocalRunner RPCRunner task template tuner FallbackContext",
    "compiler.auto_scheduler": "ApplyHistoryBest SearchTask TuningOptions RecordToFile "
    "LocalRPCMeasureContext extract_tasks TaskScheduler",
    "compiler.backends": "Partitioner Strategy GraphPass registered",
    "compiler.cli": "main",
    "compiler.torch": "baton",
    "compiler.errors": "BatonError BuildError FrontendError InputError LoadError PartitionError "
    "RecordError SavedModuleError ImportLimitError",
    "compiler.mxnet": "Context autograd context cpu current_context gluon gpu init library model "
    "name nd np npx random sym symbol waitall",
    "compiler.mxnet.gluon": "HybridBlock nn Parameter SymbolBlock",
    "compiler.mxnet.library": "load",
    "compiler.legacy": "install installed",
    "compiler.ort": "InferenceSession SessionOptions",
    "compiler.relay": "build vm optimize to_relax from_relax with_sizes with_kv_cache load_json "
    "fromtext astext Function Call const var nn transform dataflow_pattern frontend "
    "quantize create_executor analysis op testing",
    "compiler.relay.frontend": "from_onnx from_mxnet from_pytorch from_tflite ImportLimits",
    "compiler.runtime": "load_module graph_executor",
    "compiler.mxnet.symbol": "load var",
    "compiler.target": "parse",
}


@pytest.mark.parametrize("module", DOORS)
def test_a_door_has_its_names(module):
    if module == "compiler.torch":
        pytest.importorskip("torch")
    loaded = importlib.import_module(module)
    missing = [name for name in DOORS[module].split() if not hasattr(loaded, name)]
    assert not missing
