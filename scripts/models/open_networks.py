"""Export networks of public families to ONNX with every axis open that the exporter leaves open.

    python -m scripts.models.open_networks FOLDER [NAME ...]

Weights are random and nothing is downloaded. Next to `NAME.onnx` stands `NAME.json`, which gives
the sizes to try and the ranges of integer inputs; `scripts.conformance.open_networks` reads both.
"""

from __future__ import annotations

import json
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

import torch

from scripts.models.more_families import more_networks
from scripts.models.open_families import Call, Network, networks


def export(network: Network, folder: Path) -> None:
    """Write the network and its sizes into a folder."""
    torch.manual_seed(0)
    model, path = network.build().eval(), folder / f"{network.name}.onnx"
    axes = {
        name: {index: each for index, each in enumerate(shape) if isinstance(each, str)}
        for name, shape in network.inputs.items()
    }
    settings: dict[str, Any] = {"dynamic_axes": axes}
    if network.dynamo:
        auto = torch.export.Dim.AUTO
        shapes = tuple(dict.fromkeys(each, auto) for each in axes.values())
        is_variadic = isinstance(model, Call)
        settings = {"dynamic_shapes": (shapes,) if is_variadic else shapes, "external_data": False}
    with torch.no_grad():
        torch.onnx.export(
            model,
            network.example(),
            str(path),
            input_names=list(network.inputs),
            opset_version=network.opset,
            dynamo=network.dynamo,
            **settings,
        )
    facts = {
        "inputs": {name: list(shape) for name, shape in network.inputs.items()},
        "sizes": [dict(zip(network.symbols, size)) for size in network.sizes],
        "limits": dict(network.limits),
    }
    path.with_suffix(".json").write_text(json.dumps(facts))


def main(folder: str, *names: str) -> None:
    """Export the named networks, all by default, and print what fails."""
    warnings.simplefilter("ignore")
    for network in [*networks(), *more_networks()]:
        if names and network.name not in names:
            continue
        try:
            export(network, Path(folder))
            print("exported", network.name, flush=True)
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            text = str(error).strip().splitlines()
            print(
                "failed",
                network.name,
                type(error).__name__,
                *text[:2],
                frame.filename,
                frame.lineno,
                flush=True,
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
