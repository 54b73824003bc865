"""Virga: trains deep-learning models across machines joined by ordinary networks.

PyTorch users want ``import virga.torch as virga``.
"""

from virga.errors import Error

__version__ = "0.1.0"
__all__ = ["Error"]
