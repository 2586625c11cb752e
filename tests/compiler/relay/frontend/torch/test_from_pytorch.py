"""`from_pytorch` against PyTorch's own results."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm

from compiler import relay
from compiler.errors import FrontendError, UnsupportedOperatorError

torch = pytest.importorskip("torch", reason="PyTorch is not installed: the extra 'torch'")
nn = torch.nn
functional = torch.nn.functional


class Apply(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: Any) -> Any:
        return self.function(*tensors)


class Residual(nn.Module):
    def __init__(self, channels: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, stride, 1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, 1, 1)
        self.shortcut = nn.Conv2d(channels, channels, 1, stride)

    def forward(self, data: Any) -> Any:
        inner = self.second(torch.relu(self.norm(self.first(data))))
        return torch.relu(inner + self.shortcut(data))


class Recurrent(nn.Module):
    def __init__(self, kind: Any, **options: Any) -> None:
        super().__init__()
        self.cell = kind(4, 5, **options)

    def forward(self, data: Any) -> Any:
        return self.cell(data)[0]


class Branching(nn.Module):
    """Control flow over extents, a list that grows, a dict of results."""

    def forward(self, data):  # type: ignore[no-untyped-def]
        pieces = [data]
        for i in range(data.size(0)):
            pieces += [data[i : i + 1] * float(i)]
        if data.size(1) > 100:
            pieces = [data]
        return {"all": torch.cat(pieces), "sum": data.sum()}


def randn(*shape: int) -> Any:
    return torch.from_numpy(np.random.default_rng(0).standard_normal(shape).astype("float32"))


def assigned(data: Any) -> Any:
    result = data.clone()
    result[:, 0] = 1.0
    result[1] = result[1] * 2
    return result


MODELS: dict[str, Callable[[], tuple[Any, tuple[Any, ...]]]] = {
    "convolutional": lambda: (
        nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 8, 3, groups=8),
            nn.Hardswish(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Dropout(0.5),
            nn.Linear(8, 5),
            nn.Softmax(-1),
        ),
        (randn(2, 3, 12, 12),),
    ),
    "residual": lambda: (nn.Sequential(Residual(4, 1), Residual(4, 2)), (randn(1, 4, 8, 8),)),
    "transformer encoder": lambda: (
        nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
        (randn(2, 4, 8),),
    ),
    "lstm": lambda: (Recurrent(nn.LSTM, bidirectional=True, batch_first=True), (randn(2, 3, 4),)),
    "gru": lambda: (Recurrent(nn.GRU), (randn(3, 2, 4),)),
    "embedding": lambda: (
        nn.Sequential(nn.Embedding(9, 4), nn.LayerNorm(4)),
        (torch.tensor([[1, 8, 0]]),),
    ),
    "interpolation": lambda: (
        Apply(
            lambda x: (
                functional.interpolate(x, scale_factor=2, mode="nearest"),
                functional.interpolate(x, size=(7, 9), mode="bilinear", align_corners=True),
                functional.interpolate(x, scale_factor=1.5, mode="bicubic"),
            )
        ),
        (randn(1, 2, 4, 5),),
    ),
    "einsum and attention": lambda: (
        Apply(
            lambda q, k, v: (
                torch.einsum("bhij,bhkj->bhik", q, k),
                functional.scaled_dot_product_attention(q, k, v, is_causal=True),
            )
        ),
        (randn(1, 2, 5, 4), randn(1, 2, 5, 4), randn(1, 2, 5, 4)),
    ),
    "indexing": lambda: (
        Apply(lambda x: (x[:, 1:], x[..., ::2], x[0], x[:, -1], x[:, [0, 2]], assigned(x))),
        (randn(3, 4, 6),),
    ),
    "padding": lambda: (
        Apply(
            lambda x: (
                functional.pad(x, (1, 2, 0, 1)),
                functional.pad(x, (1, 1, 1, 1), mode="reflect"),
                functional.pad(x, (1, 1, 2, 1), mode="replicate"),
            )
        ),
        (randn(1, 2, 5, 6),),
    ),
    "norms": lambda: (
        nn.Sequential(nn.GroupNorm(2, 4), nn.InstanceNorm2d(4, affine=True), nn.LayerNorm([3, 5])),
        (randn(2, 4, 3, 5),),
    ),
    "what the exporter lacks or gets wrong": lambda: (
        Apply(
            lambda x, i: (
                x // 2,
                nn.ChannelShuffle(2)(x),
                x.scatter(1, i, x),
                x.floor_divide(0.3),
                functional.adaptive_avg_pool2d(torch.cat([x, x], 3), (2, 3)),
            )
        ),
        (randn(2, 4, 2, 2), torch.tensor([[[[1, 0]]]])),
    ),
    "pooling and thresholds that the exporter refuses": lambda: (
        Apply(
            lambda x: (
                functional.adaptive_max_pool2d(x, (4, 3)),
                functional.adaptive_max_pool1d(x[0], 3),
                functional.max_pool2d(x[0], 2),
                functional.max_pool3d(x, 2, padding=1),
                functional.threshold(x, 0.3, 20.0),
                functional.threshold_(x.clone(), -0.3, 2.0),
            )
        ),
        (randn(2, 3, 6, 7),),
    ),
    "functions and bits that the exporter lacks": lambda: (
        Apply(
            lambda x, i: (
                *(each(x) for each in (torch.cosh, torch.sinh, torch.asinh, torch.trunc)),
                torch.cosh(i),
                ~i,
                i ^ (i + 1).long(),
                i & 6,
                (x > 0) ^ (i > 2),
                (x > 0) | (i > 2),
            )
        ),
        (randn(3, 4), torch.arange(12, dtype=torch.int32).reshape(3, 4)),
    ),
    "added at equal indices": lambda: (
        Apply(
            lambda x, i: (
                x.index_add(1, i, x[:, :3], alpha=2),
                x.clone().index_add_(0, i[1:] * 0, x[:2]),
                x.index_put((i, -i - 1), torch.ones(3), accumulate=True),
                x.clone().index_put_((i,), x[0], accumulate=True),
            )
        ),
        (randn(3, 4), torch.tensor([2, 2, 0])),
    ),
    "means of scattered values, probabilities, searches, bytes": lambda: (
        Apply(
            lambda x, i: (
                x.scatter_reduce(1, i, x, "mean"),
                x.scatter_reduce(1, i, x[:, :3], "mean", include_self=False),
                x.scatter(0, torch.empty((0,), dtype=torch.int64), x),
                functional.cross_entropy(x, x.softmax(1), x[0], label_smoothing=0.1),
                functional.cross_entropy(x, x.softmax(1), reduction="none"),
                torch.searchsorted(i.float().sort(-1)[0], x),
                torch.searchsorted(torch.tensor([1, 2, 2]), i, right=True, out_int32=True),
                torch.all(i.to(torch.uint8), 1),
                torch.any(x > 0, 0, keepdim=True),
                i.to(torch.uint8).__ior__(6),
            )
        ),
        (randn(2, 3), torch.tensor([[0, 2, 2], [1, 0, 0]])),
    ),
    "volumes at the places of a grid": lambda: (
        Apply(
            lambda x, grid: (
                functional.grid_sample(x, grid, align_corners=False),
                functional.grid_sample(x, grid, "nearest", "border", True),
            )
        ),
        (randn(1, 2, 3, 4, 5), randn(1, 2, 2, 3, 3).clamp(-0.9, 0.9)),
    ),
    "several axes squeezed": lambda: (
        Apply(lambda x: (x.squeeze((-1, 0, 1)), x.squeeze(0), x.squeeze())),
        (randn(1, 2, 3, 1),),
    ),
    "thresholds, tails and kept dimensions": lambda: (
        Apply(
            lambda x: (
                functional.softplus(x, beta=2.0, threshold=1.0),
                functional.logsigmoid(x * 100),
                torch.norm(x, dim=None, keepdim=True),
                torch.linalg.vector_norm(x, 1, keepdim=True),
                torch.norm(x, dim=1, keepdim=True),
                torch.norm(x),
            )
        ),
        (randn(3, 4),),
    ),
}


def made(name: str) -> tuple[Any, tuple[Any, ...]]:
    torch.manual_seed(0)
    module, examples = MODELS[name]()
    return module.eval(), examples


def infos_of(examples: tuple[Any, ...]) -> list[tuple[str, tuple[int, ...]]]:
    return [(f"x{index}", tuple(value.shape)) for index, value in enumerate(examples)]


def traced(module: Any, examples: tuple[Any, ...]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.trace(module, examples, check_trace=False)


def flat(value: Any) -> list[Any]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [
        leaf
        for item in (value.values() if isinstance(value, dict) else value)
        for leaf in flat(item)
    ]


def assert_same(mod: tvm.IRModule, params: Any, module: Any, examples: tuple[Any, ...]) -> None:
    with torch.no_grad():
        expected = [value.numpy() for value in flat(module(*examples))]
    library = relay.build(mod, "llvm", params=params)
    executor = library["default"](tvm.cpu())
    for index, value in enumerate(examples):
        executor.set_input(index, value.numpy())
    executor.run()
    assert executor.get_num_outputs() == len(expected)
    for index, value in enumerate(expected):
        actual = executor.get_output(index).numpy()
        assert actual.shape == value.shape and actual.dtype == value.dtype
        np.testing.assert_allclose(actual, value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_a_traced_module_computes_what_pytorch_does(name: str) -> None:
    module, examples = made(name)
    mod, params = relay.frontend.from_pytorch(traced(module, examples), infos_of(examples))
    assert_same(mod, params, module, examples)


@pytest.mark.parametrize("name", ["convolutional", "indexing", "added at equal indices"])
def test_an_exported_program_computes_what_pytorch_does(name: str) -> None:
    module, examples = made(name)
    mod, params = relay.frontend.from_pytorch(torch.export.export(module, examples))
    assert_same(mod, params, module, examples)


ARGUMENTS: dict[str, Callable[[Any], Any]] = {
    "divisor": lambda x: functional.avg_pool2d(x, 3, 2, 1, ceil_mode=True, divisor_override=5),
    "distances": lambda x: torch.cdist(x[0, 0], x[0, 1], p=3.0),
    "distance": lambda x: functional.pairwise_distance(x, -x, p=3.0, eps=0.1, keepdim=True),
    "cosine": lambda x: functional.cosine_similarity(x, x + 1, 1, eps=5.0),
    "norm's dtype": lambda x: torch.linalg.matrix_norm(x, dtype=torch.float64),
    "dimensions kept": lambda x: torch.std(x, dim=None, correction=2, keepdim=True),
    "float bounds": lambda x: torch.clamp((x * 5).int(), -1.5, 2),
    "negative divisor": lambda x: torch.floor_divide((x * 5).int(), -2),
    "aligned corners": lambda x: functional.interpolate(
        x, scale_factor=1.7, mode="bilinear", align_corners=True
    ),
    "start from the end": lambda x: x.narrow(3, -2, 2),
    "sums of int32": lambda x: (x * 5).int().cumsum(1),
}


def test_arguments_that_the_exporter_passes_over_are_honored() -> None:
    module = Apply(lambda data: tuple(function(data) for function in ARGUMENTS.values()))
    data = randn(1, 2, 5, 7)
    mod, params = relay.frontend.from_pytorch(torch.jit.trace(module, data), [("x", data.shape)])
    executor = relay.build(mod, "llvm", params=params)["default"](tvm.cpu())
    executor.set_input("x", data.numpy())
    executor.run()
    for index, (name, expected) in enumerate(zip(ARGUMENTS, module(data))):
        got, expected = executor.get_output(index).numpy(), expected.numpy()
        assert got.dtype == expected.dtype, name
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5, err_msg=name)


def through_a_transpose(data: Any) -> Any:
    result = data.clone()
    result.T.mul_(2)
    return result


def old_view(data: Any) -> Any:
    result = data.clone()
    row = result[0]
    result.mul_(2)
    return row + 1


def written_twice(data: Any) -> Any:
    result = data.clone()
    row = result[0]
    row.mul_(2)
    row.add_(1)
    return result


@pytest.mark.parametrize("program", [through_a_transpose, old_view, written_twice])
def test_a_write_that_the_export_would_lose_is_refused(program: Callable[..., Any]) -> None:
    traced = torch.jit.trace(Apply(program), randn(3, 4))
    with pytest.raises(UnsupportedOperatorError, match="wrote to another view"):
        relay.frontend.from_pytorch(traced, [("x", (3, 4))])


def test_control_flow_over_extents_is_decided_while_importing() -> None:
    script = torch.jit.script(Branching())
    mod, params = relay.frontend.from_pytorch(script, [("x", (3, 4))])
    assert_same(mod, params, script, (randn(3, 4),))


def branch(x):  # type: ignore[no-untyped-def]
    if bool(x.sum() > 0):
        return x * 2
    return x - 1


def loop(x):  # type: ignore[no-untyped-def]
    while bool(x.abs().max() > 1):
        x = x / 2
    return x


def steps(x):  # type: ignore[no-untyped-def]
    for _ in range(int(x[0, 0])):
        x = x + 1
    return x


def early(x, y):  # type: ignore[no-untyped-def]
    scale = x.max().item()
    return y * scale


def selected(x):  # type: ignore[no-untyped-def]
    positive = x[x > 0]
    if positive.size(0) > 2:
        return x * 2
    return x


@pytest.mark.parametrize("program", [branch, loop, steps, early, selected])
def test_a_script_that_decides_by_values_is_refused(program: Callable[..., Any]) -> None:
    count = program.__code__.co_argcount
    infos = [(f"x{index}", (2, 3)) for index in range(count)]
    with pytest.raises(UnsupportedOperatorError, match=r"decides by values of its inputs") as error:
        relay.frontend.from_pytorch(torch.jit.script(program), infos)
    assert "test_from_pytorch.py" in str(error.value)


def test_an_exported_program_that_decides_by_values_is_refused() -> None:
    class Cond(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,))

    program = torch.export.export(Cond(), (randn(2, 3),))
    with pytest.raises(UnsupportedOperatorError, match="decides by values of its inputs"):
        relay.frontend.from_pytorch(program)


def test_a_script_may_decide_by_its_weights_and_extents() -> None:
    class Gate(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("gate", torch.ones(2))

        def forward(self, x):  # type: ignore[no-untyped-def]
            if bool(self.gate.sum() > 0):
                x = x * 3
            for i in range(int(torch.tensor(x.size(0)))):
                x = x + i
            return x

    script = torch.jit.script(Gate())
    mod, params = relay.frontend.from_pytorch(script, [("x", (2, 3))])
    assert_same(mod, params, script, (randn(2, 3),))


def test_parameters_follow_the_inputs_under_the_names_of_the_state_dict() -> None:
    module, examples = made("residual")
    trace = traced(module, examples)
    mod, params = relay.frontend.from_pytorch(trace, [("image", (1, 4, 8, 8))])
    names = [parameter.name for parameter in mod["main"].params]
    assert names[0] == "image"
    assert {name.replace(".", "_") for name in params} == {
        name.replace(".", "_") for name in names[1:]
    }
    assert set(params) <= set(module.state_dict())
    np.testing.assert_array_equal(
        params["0.first.weight"].numpy(), module.state_dict()["0.first.weight"].numpy()
    )
    _, renamed = relay.frontend.from_pytorch(
        trace, [("image", (1, 4, 8, 8))], use_parser_friendly_name=True
    )
    assert "0_first_weight" in renamed


def test_a_loaded_script_is_imported_like_the_one_that_was_saved(tmp_path: Any) -> None:
    module, examples = made("convolutional")
    traced(module, examples).save(str(tmp_path / "model.pt"))
    loaded = torch.jit.load(str(tmp_path / "model.pt"))
    folder = tmp_path / "graphs"
    mod, params = relay.frontend.from_pytorch(
        loaded, infos_of(examples), export_renamed_c_graph_path=str(folder)
    )
    assert_same(mod, params, module, examples)
    (graph,) = folder.iterdir()
    assert "%aten::_convolution_0 :" in graph.read_text()


def test_a_custom_converter_gets_operands_and_their_dtypes() -> None:
    module = nn.Sequential(nn.Linear(4, 5), nn.Softshrink()).eval()
    seen = []

    def shrink(inputs: list[Any], types: list[str]) -> Any:
        seen.append((inputs[1], types))
        above = relay.nn.relu(inputs[0] - relay.const(inputs[1]))
        below = relay.nn.relu(relay.negative(inputs[0]) - relay.const(inputs[1]))
        return above - below

    mod, params = relay.frontend.from_pytorch(
        traced(module, (randn(3, 4),)),
        [("x", (3, 4))],
        custom_convert_map={"aten::softshrink": shrink},
    )
    assert seen == [(0.5, ["float32", "float32"])]
    assert_same(mod, params, module, (randn(3, 4),))


def test_lists_and_tuples_of_tensors_become_inputs_of_their_own() -> None:
    class Mixed(nn.Module):
        def forward(
            self, xs: list[torch.Tensor], pair: tuple[torch.Tensor, torch.Tensor]
        ) -> torch.Tensor:
            return xs[0] + xs[1] * pair[0] - pair[1]

    script = torch.jit.script(Mixed())
    mod, _ = relay.frontend.from_pytorch(
        script, [("xs", [(3, 4), (3, 4)]), ("pair", ((3, 4), (4,)))]
    )
    assert [parameter.name for parameter in mod["main"].params] == [
        "xs_0",
        "xs_1",
        "pair_0",
        "pair_1",
    ]


def test_wrong_inputs_are_refused_by_name() -> None:
    module, examples = made("residual")
    trace = traced(module, examples)
    with pytest.raises(FrontendError, match=r"'x' the shape \(1, 4, 9, 9\); it was traced for"):
        relay.frontend.from_pytorch(trace, [("x", (1, 4, 9, 9))])
    with pytest.raises(FrontendError, match="has 1 inputs, but input_infos names 0"):
        relay.frontend.from_pytorch(trace)
    with pytest.raises(FrontendError, match=r"torch\.jit\.trace"):
        relay.frontend.from_pytorch(module, [("x", (1, 4, 8, 8))])
    program = torch.export.export(module, examples)
    with pytest.raises(FrontendError, match="it was exported for"):
        relay.frontend.from_pytorch(program, [("x", (1, 4, 9, 9))])


def test_an_unknown_operator_is_named() -> None:
    trace = traced(Apply(lambda x: torch.linalg.eigvalsh(x)), (randn(3, 3),))
    with pytest.raises(UnsupportedOperatorError, match="linalg_eigh"):
        relay.frontend.from_pytorch(trace, [("x", (3, 3))])
