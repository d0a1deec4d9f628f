"""Functions of the extension module, device.cpp."""

def register_hooks() -> None:
    """Register the hooks with torch, once."""

def device_count() -> int:
    """Return the number of devices."""

def host_address(address: int) -> int:
    """Return the host's address of memory of the current device; raise ``ValueError`` for any other memory."""
