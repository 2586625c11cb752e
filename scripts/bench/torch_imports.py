"""What each process of torch_compile.py needs, loaded where they are all forked from."""

import timm  # noqa: F401
import torch._inductor.compile_fx  # noqa: F401
import torchvision  # noqa: F401
import transformers  # noqa: F401

from compiler import relay

relay.build  # noqa: B018 - importing the package alone loads none of it
