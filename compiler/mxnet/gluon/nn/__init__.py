"""Layers."""

from ..block import Block
from ..hybrid_block import HybridBlock
from ..symbol_block import SymbolBlock
from .activations import ELU, GELU, SELU, Activation, LeakyReLU, PReLU, SiLU, Swish
from .basic import Dense, Dropout, Embedding, Flatten, HybridLambda, Identity, Lambda
from .containers import Concatenate, HybridConcatenate, HybridSequential, Sequential
from .convolution import (
    Conv1D,
    Conv1DTranspose,
    Conv2D,
    Conv2DTranspose,
    Conv3D,
    Conv3DTranspose,
    ReflectionPad2D,
)
from .normalization import BatchNorm, GroupNorm, InstanceNorm, LayerNorm, SyncBatchNorm
from .pixel_shuffle import PixelShuffle1D, PixelShuffle2D, PixelShuffle3D
from .pooling import (
    AvgPool1D,
    AvgPool2D,
    AvgPool3D,
    GlobalAvgPool1D,
    GlobalAvgPool2D,
    GlobalAvgPool3D,
    GlobalMaxPool1D,
    GlobalMaxPool2D,
    GlobalMaxPool3D,
    MaxPool1D,
    MaxPool2D,
    MaxPool3D,
)

Concurrent, HybridConcurrent = Concatenate, HybridConcatenate  # in MXNet 1.x
