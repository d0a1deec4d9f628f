"""A PrivateUse1 device of torch, registered when torch is imported, and the target of its kernels.

``register`` is an entry point of the group ``torch.backends``, the target in :mod:`litz_device_toy.target` one of
``litz.targets``.
"""

from __future__ import annotations

import torch
from torch.utils import backend_registration

from litz_device_toy import _C, device_module

__version__ = "0.1.0"

KIND = "toy"
"""Kind of the device, which torch, the entry point of the target and its capabilities name alike."""


def register() -> None:
    """Register the device with torch; called once, by torch, at the end of its own import."""
    _C.register_hooks()
    backend_registration.rename_privateuse1_backend(KIND)
    torch._register_device_module(KIND, device_module)
    backend_registration.generate_methods_for_privateuse1_backend()
