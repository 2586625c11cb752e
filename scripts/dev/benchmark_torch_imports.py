"""What each process of benchmark_torch.py needs, loaded where they are all forked from."""

import timm  # noqa: F401
import torchvision  # noqa: F401
import transformers  # noqa: F401

import compiler.dynamo  # noqa: F401
