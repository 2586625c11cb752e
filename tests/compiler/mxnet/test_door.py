"""`compiler.mxnet` under MXNet's names, and `import mxnet` under `baton run`."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from compiler import legacy
from compiler import mxnet as mx
from compiler.errors import ArrayError, LegacyImportError
from compiler.legacy.import_hook import use_names_of_mxnet

NETWORK = """
from mxnet import gluon, nd, np, npx
from mxnet.base import MXNetError
from mxnet.context import cpu
from mxnet.gluon import nn
from mxnet.gluon.block import HybridBlock
from mxnet.gluon.contrib.nn import HybridConcurrent
from mxnet.gluon.model_zoo import vision
from mxnet.ndarray import NDArray
from mxnet.numpy import ones
from mxnet.test_utils import assert_almost_equal
from mxnet.util import use_np
import numpy

npx.set_np()


@use_np
class Net(HybridBlock):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Dense(4, activation="relu", in_units=3)

    def forward(self, x):
        return self.hidden(x) + 1


net = Net()
net.initialize(mx.init.One(), ctx=mx.cpu())
net.hybridize()
found = net(mx.np.ones((2, 3)))
assert isinstance(found, NDArray)
assert_almost_equal(found, numpy.full((2, 4), 4))
x = mx.sym.var("x", shape=(2,))
assert ((x + 1).bind(mx.cpu(), {"x": mx.nd.ones((2,))}).forward()[0] == 2).all()
assert mx.context.Context is mx.Context and mx.current_context() == cpu()
assert mx.random.uniform(size=(2,)).shape == (2,)
assert mx.model.load_checkpoint and mx.library.load and mx.gluon.contrib.nn is nn
try:
    mx.nd.sparse.csr_matrix([])
except MXNetError:
    print("done")
"""


def run(folder: Path, text: str, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a folder that has nothing but the script."""
    (folder / "script.py").write_text(text)
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = (sys.executable, *command, "script.py")
    return subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=300
    )


def test_a_script_of_mxnet_runs_unchanged(tmp_path):
    done = run(tmp_path, "import mxnet as mx" + NETWORK, "-m", "compiler", "run")
    assert done.stdout == "done\n", done.stderr


def test_a_script_of_mxnet_runs_after_one_changed_import(tmp_path):
    text = "from compiler import mxnet as mx\nnet = mx.gluon.nn.Dense(2, in_units=3)\n"
    text += "net.initialize(mx.init.One())\nprint(net(mx.np.ones((1, 3))).sum())\n"
    done = run(tmp_path, text)
    assert done.stdout == "6.0\n", done.stderr


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("mxnet.rnn", "mxnet.rnn is not supported: import a trained network"),
        ("mxnet.operator", "mxnet.operator is not supported: write the operator"),
        ("mxnet.amp", "mxnet.amp has no counterpart: .* docs/gluon.md"),
    ],
)
def test_an_absent_module_of_mxnet_says_what_to_use(module, message):
    with legacy.installed(), pytest.raises(ImportError, match=message):
        use_names_of_mxnet(True)
        importlib.import_module(module)


@pytest.mark.parametrize("module", ["np", "npx", "nd", "random", "autograd", "symbol", "util"])
def test_a_module_can_be_imported_first(module):
    subprocess.run([sys.executable, "-c", f"import compiler.mxnet.{module}"], check=True)


@pytest.mark.parametrize("name", ["io", "kvstore", "operator", "rnn"])
def test_an_unsupported_module_says_what_to_use(name):
    with pytest.raises(LegacyImportError, match=f"mxnet.{name} is not supported: ."):
        getattr(mx, name)


def test_default_ctx_is_the_device_of_new_arrays():
    with mx.cpu(0):
        mx.Context.default_ctx = mx.cpu(3)
        assert mx.Context.default_ctx == mx.current_context() == mx.cpu(3)
        assert mx.np.ones((1,)).device == mx.cpu(3)
        with pytest.raises(ArrayError, match="must be a device"):
            mx.Context.default_ctx = "cpu"
