"""3-D ResNet for video: `resnet` over depth, height and width.

Hara, Kataoka and Satoh, "Can Spatiotemporal 3D CNNs Retrace the History of 2D CNNs and ImageNet?"
(2018).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax

from . import resnet as of_images
from .init import create_workload


def residual_unit(
    data: relax.Expr,
    num_filter: int,
    stride: Sequence[int],
    dim_match: bool,
    name: str,
    bottle_neck: bool = True,
    data_layout: str = "NCDHW",
    kernel_layout: str = "OIDHW",
) -> relax.Expr:
    """Residual unit over three axes; see `resnet`."""
    return of_images.residual_unit(
        data, num_filter, stride, dim_match, name, bottle_neck, data_layout, kernel_layout
    )


def resnet(
    units: Sequence[int],
    num_stages: int,
    filter_list: Sequence[int],
    num_classes: int,
    data_shape: Sequence[int],
    bottle_neck: bool = True,
    layout: str = "NCDHW",
    dtype: str = "float32",
) -> relax.Function:
    """Build a network with the given stages."""
    return of_images.resnet(
        units, num_stages, filter_list, num_classes, data_shape, bottle_neck, layout, dtype
    )


def get_net(
    batch_size: int,
    num_classes: int,
    num_layers: int = 50,
    image_shape: Sequence[int] = (3, 16, 112, 112),
    layout: str = "NCDHW",
    dtype: str = "float32",
    **kwargs: Any,
) -> relax.Function:
    """Build a network of `num_layers` layers for video of `image_shape`, in the layout's order."""
    return of_images.get_net(
        batch_size, num_classes, num_layers, image_shape, layout, dtype, **kwargs
    )


def get_workload(
    batch_size: int = 1,
    num_classes: int = 1000,
    num_layers: int = 18,
    image_shape: Sequence[int] = (3, 16, 112, 112),
    layout: str = "NCDHW",
    dtype: str = "float32",
    **kwargs: Any,
) -> tuple[tvm.IRModule, dict[str, Any]]:
    """Build the network as a module with parameters."""
    return create_workload(
        get_net(batch_size, num_classes, num_layers, image_shape, layout, dtype, **kwargs)
    )
