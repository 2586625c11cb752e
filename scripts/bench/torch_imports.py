"""Imports that all processes of torch_compile.py share, loaded before the fork."""

import timm  # noqa: F401
import torch._inductor.compile_fx  # noqa: F401
import torchvision  # noqa: F401
import transformers  # noqa: F401

from compiler import relay

relay.build  # noqa: B018 - importing the package alone loads none of it
