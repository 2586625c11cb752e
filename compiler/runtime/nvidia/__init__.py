"""Subgraphs that NVIDIA's libraries compute: cuBLASLt and cuDNN, from pip's packages or a toolkit.

A subgraph's code is a description in JSON, from `compiler.backends.nvidia`. The libraries are
found by `cuda_files` and called through ctypes, on the stream on which TVM launches its kernels.
"""

FILES = {"cublaslt": "libcublasLt.so.13", "cudnn": "libcudnn.so.9"}
PACKAGES = {"cublaslt": "nvidia-cublas>=13,<14", "cudnn": "nvidia-cudnn-cu13"}
"""File and pip package of the library of each partitioner."""
