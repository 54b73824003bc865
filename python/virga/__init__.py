"""Virga: trains deep-learning models across machines joined by ordinary networks.

PyTorch users want ``import virga.torch as virga``.
"""

import importlib
import sys

from virga.errors import Error

try:
    importlib.import_module("virga._core")
except ModuleNotFoundError as error:  # one that is there but can't be loaded says why by itself
    raise ImportError("Virga's library is not built for this Python "
                      f"({sys.version_info.major}.{sys.version_info.minor}): use build/release/python, ./dev python or "
                      "pip install .") from error

__version__ = "0.1.0"
__all__ = ["Error"]
