"""Programs of `torch.export` with `dynamic_shapes`: one library for all extents."""

from __future__ import annotations

from typing import Any

import pytest

from compiler import relay
from compiler.errors import FrontendError, InputError, UnsupportedOperatorError

torch = pytest.importorskip("torch", reason="PyTorch is not installed: the extra 'torch'")
nn = torch.nn


class Attention(nn.Module):
    """A layer of a transformer with a table of positions and a mask, and a number."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(16, 48)
        self.position = nn.Embedding(64, 16)

    def forward(self, data: Any, mask: Any) -> tuple[Any, int]:
        batch, length, _ = data.shape
        data = data + self.position(torch.arange(length))
        heads = self.project(data).view(batch, length, 3, 2, 8).permute(2, 0, 3, 1, 4)
        mask = mask[:, None, None, :].expand(batch, 1, length, length)
        mixed = nn.functional.scaled_dot_product_attention(*heads.unbind(0), attn_mask=mask)
        return mixed.transpose(1, 2).reshape(batch, length, -1), -(-length // 2)


def arguments(batch: int, length: int) -> tuple[Any, Any]:
    mask = torch.arange(length).expand(batch, length) % 3 < 2
    return torch.randn(batch, length, 16), mask


def exported(module: nn.Module, examples: tuple[Any, ...], **bounds: int) -> Any:
    """A program whose first axes are open, as many as there are bounds."""
    dims = {axis: torch.export.Dim(*bound[:1], max=bound[1])
            for axis, bound in enumerate(bounds.items())}  # fmt: skip
    shapes = tuple(dims for _ in examples)
    return torch.export.export(module, examples, dynamic_shapes=shapes, strict=False)


def test_one_library_serves_all_extents_up_to_their_bounds() -> None:
    torch.manual_seed(0)
    module = Attention().eval()
    program = exported(module, arguments(2, 5), batch=8, length=64)
    names = [("data", ("batch", None, 16)), ("mask", ("batch", "length"))]
    mod, params = relay.frontend.from_pytorch(program, names)
    session = relay.build(mod, "llvm", params=params).session(num_threads=1)
    assert [info.shape for info in session.inputs] == [("batch", "length", 16), ("batch", "length")]
    mixed, half = (info.name for info in session.outputs)
    for batch, length in ((1, 1), (2, 7), (3, 64)):
        data, mask = arguments(batch, length)
        with torch.no_grad():
            wanted = module(data, mask)
        found = session.run({"data": data.numpy(), "mask": mask.numpy()})
        torch.testing.assert_close(torch.from_numpy(found[mixed]), wanted[0], rtol=1e-5, atol=1e-5)
        assert found[half] == wanted[1]
    data, mask = arguments(9, 2)
    with pytest.raises(InputError, match="batch"):
        session.run({"data": data.numpy(), "mask": mask.numpy()})


def test_a_number_closes_an_extent_wherever_the_program_has_it() -> None:
    program = exported(Attention().eval(), arguments(2, 5), batch=8, length=64)
    mod, params = relay.frontend.from_pytorch(
        program, [("data", (2, "n", 16)), ("mask", (None, None))]
    )
    inputs = relay.build(mod, "llvm", params=params).session().inputs
    assert [info.shape for info in inputs] == [(2, "n", 16), (2, "n")]
    with pytest.raises(FrontendError, match=r"\(9, 5, 16\); it was exported for"):
        relay.frontend.from_pytorch(program, [("data", (9, 5, 16)), ("mask", (9, 5))])


class Pooled(nn.Module):
    def forward(self, data: Any) -> Any:
        return nn.functional.adaptive_avg_pool2d(data[None], (3, 3))


def test_a_number_of_the_example_that_would_stay_is_refused() -> None:
    program = exported(Pooled(), (torch.randn(2, 8, 8),), channels=9, height=30)
    with pytest.raises(UnsupportedOperatorError, match="would keep the example's"):
        relay.frontend.from_pytorch(program)
    mod, _ = relay.frontend.from_pytorch(program, [("data", (2, 7, 8))])
    assert [int(extent) for extent in mod["main"].body.ty.shape] == [1, 2, 3, 3]


class Named(nn.Module):
    """Results in dicts and lists."""

    def forward(self, one: Any, other: Any) -> dict[str, Any]:
        return {"scores": one + other, "hidden": [one * 2, (other.sum(0),)]}


def test_extents_and_outputs_keep_the_names_of_the_program() -> None:
    program = exported(Named().eval(), (torch.randn(2, 3), torch.randn(2, 3)), batch=8)
    mod, params = relay.frontend.from_pytorch(program)
    metadata = relay.build(mod, "llvm", params=params).metadata
    assert [info.shape for info in metadata.inputs] == [("batch", 3), ("batch", 3)]
    assert [(info.name, info.shape) for info in metadata.outputs] == [
        ("scores", ("batch", 3)),
        ("hidden_0", ("batch", 3)),
        ("hidden_1_0", (3,)),
    ]
    renamed, _ = relay.frontend.from_pytorch(program, [("a", ("rows", 3)), ("b", (None, 3))])
    assert str(renamed["main"].params[0].ty.shape[0]) == "rows"


def test_outputs_without_keys_are_numbered() -> None:
    traced = torch.jit.trace(nn.Linear(3, 2).eval(), torch.randn(1, 3))
    mod, _ = relay.frontend.from_pytorch(traced, [("x", (1, 3))])
    assert list(mod["main"].attrs["output_names"]) == ["output0"]
