"""`torch.compile(model, backend="baton")` against eager PyTorch."""

from __future__ import annotations

import importlib.metadata
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: the extra 'torch'")
from compiler.errors import FrontendError, InputError, UnsupportedOperatorError  # noqa: E402
from compiler.torch import backend, baton  # noqa: E402

nn = torch.nn


class Attention(nn.Module):
    """A layer of a transformer that returns a dict, and a number."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.project = nn.Linear(width, 3 * width)
        self.register_buffer("scale", torch.tensor(0.5))

    def forward(self, data: Any, mask: Any = None) -> dict[str, Any]:
        query, key, value = self.project(self.norm(data)).chunk(3, -1)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return {"mixed": data + self.scale * mixed, "length": data.shape[-2]}


def convolutions() -> Any:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    ).eval()


@pytest.fixture(autouse=True)
def forget_what_dynamo_compiled():
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def test_batches_of_any_size_and_weights_that_change():
    model = convolutions()
    compiled = torch.compile(model, backend=baton, options={"num_threads": 1, "opt_level": 1})
    with torch.no_grad():
        for batch in (1, 2, 3, 2):
            data = torch.randn(batch, 3, 8, 8)
            torch.testing.assert_close(compiled(data), model(data))
        model[5].bias.add_(1)
        torch.testing.assert_close(compiled(data), model(data))
        model[5].weight = nn.Parameter(torch.ones(5, 8))
        torch.testing.assert_close(compiled(data), model(data))


@pytest.mark.parametrize("dynamic", [None, True])
def test_results_keep_their_structure(dynamic):
    model = Attention().eval()
    compiled = torch.compile(model, backend=baton, dynamic=dynamic)
    with torch.inference_mode():
        for length in (3, 5):
            data = torch.randn(2, length, 16)
            mask = torch.ones(length, length, dtype=torch.bool).tril()
            ours, theirs = compiled(data, mask), model(data, mask)
            assert ours["length"] == theirs["length"] == length
            torch.testing.assert_close(ours["mixed"], theirs["mixed"], rtol=1e-5, atol=1e-5)


@pytest.fixture
def built(monkeypatch):
    """The libraries that are built, in order."""
    made: list[Any] = []
    build = backend._build
    monkeypatch.setattr(backend, "_build", lambda *given: made.append(build(*given)) or made[-1])
    return made


def test_one_library_serves_open_extents(built):
    model = Attention().eval()
    compiled = torch.compile(model, backend=baton, dynamic=True)
    with torch.inference_mode():
        for batch, length in ((2, 3), (3, 5), (4, 9)):
            data = torch.randn(batch, length, 16)
            ours, theirs = compiled(data), model(data)
            assert ours["length"] == length
            torch.testing.assert_close(ours["mixed"], theirs["mixed"], rtol=1e-5, atol=1e-5)
    assert len(built) == 1


def test_a_batch_that_is_marked_dynamic_is_a_symbol(built):
    model = convolutions()
    compiled = torch.compile(model, backend=baton, options={"opt_level": 1})
    with torch.no_grad():
        for batch in (2, 5):
            data = torch.randn(batch, 3, 8, 8)
            torch._dynamo.mark_dynamic(data, 0)
            torch.testing.assert_close(compiled(data), model(data))
    assert len(built) == 1


def test_extents_that_cannot_be_symbols_have_libraries_of_their_own(built, caplog):
    compiled = torch.compile(nn.AdaptiveAvgPool2d(3), backend=baton, dynamic=True)
    with torch.no_grad():
        for height in (7, 8, 7):
            data = torch.randn(2, 3, height, 8)
            torch.testing.assert_close(compiled(data), nn.functional.adaptive_avg_pool2d(data, 3))
    assert len(built) == 2
    warnings = [each for each in caplog.records if each.name == "baton.torch"]
    assert len(warnings) == 1 and "open extents" in warnings[0].getMessage()


def test_a_library_for_each_shape_where_it_is_asked_for(built):
    compiled = torch.compile(
        lambda data: data * 2, backend=baton, dynamic=True, options={"per_shape": True}
    )
    with torch.no_grad():
        for length in (3, 4, 3):
            assert compiled(torch.ones(length)).tolist() == [2] * length
    assert len(built) == 2


def test_a_graph_break_leaves_two_graphs():
    def function(data: Any) -> Any:
        data = torch.relu(data) * 2
        if data.sum() > 0:  # decided by the values: PyTorch runs this itself
            data = data + 1
        return torch.sigmoid(data)

    compiled = torch.compile(function, backend=baton)
    with torch.no_grad():
        for data in (torch.ones(2, 3), -torch.ones(2, 3)):
            torch.testing.assert_close(compiled(data), function(data))


def test_arguments_need_not_be_contiguous_or_float32():
    def function(one: Any, other: Any) -> Any:
        return (one.t() + 1, other * 2)

    compiled = torch.compile(function, backend=baton)
    one = torch.randn(4, 6)[:, ::2]
    other = torch.arange(6, dtype=torch.bfloat16)
    with torch.no_grad():
        for ours, theirs in zip(compiled(one, other), function(one, other)):
            assert ours.dtype == theirs.dtype
            torch.testing.assert_close(ours, theirs)


def test_training_is_refused():
    with pytest.raises(Exception, match="compiles inference") as caught:
        torch.compile(convolutions(), backend=baton)(torch.randn(1, 3, 8, 8))
    assert isinstance(caught.value.__cause__ or caught.value.inner_exception, FrontendError)


def test_unknown_options_are_refused():
    graph = torch.fx.symbolic_trace(nn.ReLU())
    with pytest.raises(InputError, match="no option 'levl'"):
        baton(graph, [torch.ones(1)], options={"levl": 3})
    with pytest.raises(InputError, match="num_threads must be an integer from 1 to 1024"):
        baton(graph, [torch.ones(1)], options={"num_threads": 0})
    with pytest.raises(InputError, match="no mode 'max-autotune'"):
        baton(graph, [torch.ones(1)], mode="max-autotune")


def test_writing_into_an_argument_is_refused():
    compiled = torch.compile(lambda data: data.add_(1) * 2, backend=baton)
    with torch.no_grad(), pytest.raises(UnsupportedOperatorError, match="writes into"):
        compiled(torch.ones(3))


def test_pytorch_finds_the_backend_by_its_name():
    entries = importlib.metadata.entry_points(group="torch_dynamo_backends", name="baton")
    if not entries:
        pytest.skip("Baton is not installed, so it has no entry points")
    assert entries["baton"].load() is baton
