#!/usr/bin/env python3
"""Export detection networks with random weights as ONNX files: torchvision's, and one like YOLO.

    python -m scripts.models.detectors folder
    python -m scripts.models.detectors folder --only ssdlite,yolo --size 128x160

Needs torch, torchvision and onnx. Each network is exported twice, by the TorchScript exporter: for
images of one size, and `<name>_any.onnx` for images of any. Random weights alone find nothing:
normalizations get the statistics of their inputs, and the last layers of the heads are scaled so
that scores differ and some tens of boxes stay. An image to run it on lies beside, `image.npy`.
"""

from __future__ import annotations

import argparse
import itertools
import pathlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torchvision
from torch import nn
from torchvision.models import detection
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone

CLASSES = 21
OPSET = 17


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--only", default=",".join(NETWORKS), help="names, separated by commas")
    parser.add_argument("--size", default="128x160", help="height x width of the image")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    height, width = (int(each) for each in args.size.split("x"))
    args.folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1)
    image = nn.functional.interpolate(
        torch.rand(1, 3, height // 8, width // 8), (height, width), mode="bicubic"
    )[0].clamp(0, 1)
    np.save(args.folder / "image.npy", image.numpy())
    for name in args.only.split(","):
        torch.manual_seed(2)
        model, names = NETWORKS[name](image)
        for suffix, axes in (("", {}), ("_any", {"image": {1: "height", 2: "width"}})):
            path = args.folder / f"{name}{suffix}.onnx"
            torch.onnx.export(
                model,
                (image,),
                str(path),
                opset_version=OPSET,
                dynamo=False,
                input_names=["image"],
                output_names=names,
                dynamic_axes=axes,
            )
            print(path, f"{path.stat().st_size / 1e6:.0f} MB", flush=True)
    return 0


class OfOneImage(nn.Module):
    """A detector of torchvision's as a network from an image (3, h, w) to its results."""

    def __init__(self, model: nn.Module, names: list[str]):
        super().__init__()
        self.model, self.names = model, names

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, ...]:
        (found,) = self.model([image])
        return tuple(found[name] for name in self.names)


def prepared(
    model: nn.Module, image: torch.Tensor, heads: list[nn.Module], spread: float
) -> nn.Module:
    """The model with normalizations fitted to the image, and heads whose results vary by `spread`.

    Parameters
    ----------
    heads : list of torch.nn.Module
        Convolutions and linear layers whose results, over all places, get a standard deviation of
        `spread` and keep the mean that their bias gives.
    """
    model.eval()
    handles = [
        module.register_forward_pre_hook(_fit)
        for module in model.modules()
        if isinstance(module, nn.BatchNorm2d | torchvision.ops.FrozenBatchNorm2d)
    ]
    with torch.no_grad():
        model([image])
        for handle in handles:
            handle.remove()
        for head in heads:
            scaler = _Scaler(head, spread)
            model([image])
            scaler.remove()
    return model


def _fit(module: Any, inputs: tuple[torch.Tensor, ...]) -> None:
    (data,) = inputs
    if data[0, 0].numel() == 1:
        return  # a single place has no deviation
    module.running_mean.copy_(data.mean((0, 2, 3)))
    module.running_var.copy_(data.var((0, 2, 3), unbiased=False) + 1e-5)


class _Scaler:
    """Scales the weights of a layer, the first time that it is called, to a spread of results."""

    def __init__(self, layer: Any, spread: float):
        self.spread, self.done = spread, False
        self.handle = layer.register_forward_hook(self)
        self.remove = self.handle.remove

    def __call__(self, layer: Any, inputs: Any, result: torch.Tensor) -> torch.Tensor:
        if self.done:
            return result
        self.done = True
        center = layer.bias.view(1, -1, *[1] * (result.ndim - 2))
        mean = (result - center).mean(0 if result.ndim == 2 else (0, 2, 3))
        factor = self.spread / result.sub(center).std()
        layer.weight.mul_(factor)
        layer.bias.sub_(mean * factor)  # what all places share tells none of them from another
        return (result - center) * factor + layer.bias.view_as(center)


def _sizes(image: torch.Tensor) -> dict[str, int]:
    return {"min_size": min(image.shape[1:]), "max_size": max(image.shape[1:])}


def faster_rcnn(image: torch.Tensor) -> tuple[nn.Module, list[str]]:
    """Faster R-CNN on a ResNet-18 with a feature pyramid."""
    backbone = resnet_fpn_backbone(backbone_name="resnet18", weights=None, trainable_layers=5)
    return _rcnn(detection.FasterRCNN(backbone, CLASSES, **_sizes(image)), image, [])


def faster_rcnn_mobilenet(image: torch.Tensor) -> tuple[nn.Module, list[str]]:
    """Faster R-CNN on MobileNetV3."""
    model = detection.fasterrcnn_mobilenet_v3_large_320_fpn(
        weights=None, weights_backbone=None, num_classes=CLASSES, **_sizes(image)
    )
    return _rcnn(model, image, [])


def mask_rcnn(image: torch.Tensor) -> tuple[nn.Module, list[str]]:
    """Mask R-CNN on a ResNet-18 with a feature pyramid."""
    backbone = resnet_fpn_backbone(backbone_name="resnet18", weights=None, trainable_layers=5)
    return _rcnn(detection.MaskRCNN(backbone, CLASSES, **_sizes(image)), image, ["masks"])


def mask_rcnn_resnet50(image: torch.Tensor) -> tuple[nn.Module, list[str]]:
    """torchvision's maskrcnn_resnet50_fpn."""
    model = detection.maskrcnn_resnet50_fpn(
        weights=None, weights_backbone=None, num_classes=CLASSES, **_sizes(image)
    )
    return _rcnn(model, image, ["masks"])


def _rcnn(model: Any, image: torch.Tensor, more: list[str]) -> tuple[nn.Module, list[str]]:
    model.roi_heads.score_thresh = 0.3
    heads = [
        model.rpn.head.cls_logits,
        model.rpn.head.bbox_pred,
        model.roi_heads.box_predictor.cls_score,
        model.roi_heads.box_predictor.bbox_pred,
    ]
    names = ["boxes", "labels", "scores", *more]
    return OfOneImage(prepared(model, image, heads, 1.5), names).eval(), names


def _deep_pyramid() -> nn.Module:
    """A ResNet-18 with a feature pyramid of two levels more."""
    return resnet_fpn_backbone(
        backbone_name="resnet18",
        weights=None,
        trainable_layers=5,
        returned_layers=[2, 3, 4],
        extra_blocks=torchvision.ops.feature_pyramid_network.LastLevelP6P7(256, 256),
    )


def retinanet(image: torch.Tensor) -> tuple[nn.Module, list[str]]:
    """RetinaNet on a ResNet-18 with a feature pyramid."""
    model = detection.RetinaNet(_deep_pyramid(), CLASSES, **_sizes(image), score_thresh=0.04)
    heads = [model.head.classification_head.cls_logits, model.head.regression_head.bbox_reg]
    names = ["boxes", "scores", "labels"]
    return OfOneImage(prepared(model, image, heads, 0.8), names).eval(), names


def fcos(image: torch.Tensor) -> tuple[nn.Module, list[str]]:
    """FCOS on a ResNet-18 with a feature pyramid."""
    model = detection.FCOS(_deep_pyramid(), CLASSES, **_sizes(image), score_thresh=0.12)
    heads = [model.head.classification_head.cls_logits, model.head.regression_head.bbox_reg]
    names = ["boxes", "scores", "labels"]
    return OfOneImage(prepared(model, image, heads, 1.0), names).eval(), names


def ssd(image: torch.Tensor) -> tuple[nn.Module, list[str]]:
    """torchvision's ssd300_vgg16."""
    model = detection.ssd300_vgg16(weights=None, weights_backbone=None, num_classes=CLASSES)
    return _ssd(model, image)


def ssdlite(image: torch.Tensor) -> tuple[nn.Module, list[str]]:
    """torchvision's ssdlite320_mobilenet_v3_large."""
    model = detection.ssdlite320_mobilenet_v3_large(
        weights=None, weights_backbone=None, num_classes=CLASSES
    )
    return _ssd(model, image)


def _ssd(model: Any, image: torch.Tensor) -> tuple[nn.Module, list[str]]:
    model.score_thresh = 0.4
    heads = []
    for head in (model.head.classification_head, model.head.regression_head):
        for each in head.module_list:
            heads.append(each[-1] if isinstance(each, nn.Sequential) else each)
    names = ["boxes", "scores", "labels"]
    return OfOneImage(prepared(model, image, heads, 1.5), names).eval(), names


class Yolo(nn.Module):
    """A network like YOLOv8: three scales, boxes from distances, suppression by class."""

    def __init__(self, width: int = 32, classes: int = CLASSES - 1):
        super().__init__()
        widths = [width, width * 2, width * 4, width * 8, width * 8]
        self.stem = _conv(3, widths[0], 2)
        self.stages = nn.ModuleList(
            nn.Sequential(_conv(a, b, 2), _Split(b), _Split(b))
            for a, b in itertools.pairwise(widths)
        )
        self.heads = nn.ModuleList(
            nn.Sequential(_conv(each, 64, 1), nn.Conv2d(64, 4 + classes, 1)) for each in widths[2:]
        )
        self.up = nn.Upsample(scale_factor=2.0)
        self.lateral = nn.ModuleList(
            _conv(a + b, b, 1) for a, b in ((widths[4], widths[3]), (widths[3], widths[2]))
        )
        self.threshold, self.overlap = 0.3, 0.5

    def forward(self, image: torch.Tensor | list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        data = (image[0] if isinstance(image, list) else image)[None]
        data, levels = self.stem(data), []
        for stage in self.stages:
            data = stage(data)
            levels.append(data)
        p5 = levels[3]
        p4 = self.lateral[0](torch.cat([self.up(p5), levels[2]], 1))
        p3 = self.lateral[1](torch.cat([self.up(p4), levels[1]], 1))
        boxes, scores = [], []
        for head, level, stride in zip(self.heads, (p3, p4, p5), (8, 16, 32)):
            result = head(level)
            rows = torch.arange(level.shape[2], dtype=torch.float32) + 0.5
            columns = torch.arange(level.shape[3], dtype=torch.float32) + 0.5
            center = torch.stack(torch.meshgrid(rows, columns, indexing="ij")[::-1], 0)[None]
            reach = nn.functional.softplus(result[:, :4])
            box = torch.cat([center - reach[:, :2], center + reach[:, 2:]], 1) * stride
            boxes.append(box.flatten(2))
            scores.append(result[:, 4:].sigmoid().flatten(2))
        box = torch.cat(boxes, 2)[0].transpose(0, 1)
        score = torch.cat(scores, 2)[0].transpose(0, 1)
        place, label = torch.nonzero(score > self.threshold, as_tuple=True)
        best = score[place, label]
        kept = torchvision.ops.batched_nms(box[place], best, label, self.overlap)[:100]
        return box[place][kept], best[kept], label[kept]


class _Split(nn.Module):
    """Half of the channels through two convolutions, beside all of them."""

    def __init__(self, width: int):
        super().__init__()
        half = width // 2
        self.inner = nn.Sequential(_conv(half, half, 1, 3), _conv(half, half, 1, 3))
        self.last = _conv(width + half, width, 1)

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        inner = data[:, data.shape[1] // 2 :]
        return self.last(torch.cat([data, inner + self.inner(inner)], 1))


def _conv(before: int, after: int, stride: int, kernel: int | None = None) -> nn.Module:
    kernel = kernel or (3 if stride == 2 else 1)
    convolution = nn.Conv2d(before, after, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(after), nn.SiLU())


def yolo(image: torch.Tensor) -> tuple[nn.Module, list[str]]:
    """A network like YOLOv8 with its suppression."""
    model = Yolo()
    heads = [head[-1] for head in model.heads]
    for head in heads:
        nn.init.constant_(head.bias[4:], -2.5)
    names = ["boxes", "scores", "labels"]
    return prepared(model, image, heads, 1.0).eval(), names


NETWORKS: dict[str, Callable[[torch.Tensor], tuple[nn.Module, list[str]]]] = {
    "faster_rcnn": faster_rcnn,
    "faster_rcnn_mobilenet": faster_rcnn_mobilenet,
    "mask_rcnn": mask_rcnn,
    "mask_rcnn_resnet50": mask_rcnn_resnet50,
    "retinanet": retinanet,
    "fcos": fcos,
    "ssd": ssd,
    "ssdlite": ssdlite,
    "yolo": yolo,
}

if __name__ == "__main__":
    raise SystemExit(main())
