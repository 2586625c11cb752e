"""Names of `mxnet.base`."""

from numpy import float32 as mx_real_t

from compiler.errors import BatonError as MXNetError
