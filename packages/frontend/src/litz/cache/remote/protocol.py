"""The interface of a remote store, which knows nothing of entries: bytes under names."""

from __future__ import annotations

from typing import Protocol


class RemoteStore(Protocol):
    """Bytes by key. Both methods may wait and raise anything: callers bound their time and count their failures."""

    def get(self, key: str) -> bytes | None:
        """Return the bytes of a key, such as ``graphs/0a1b``; ``None`` where it has none."""

    def put(self, key: str, data: bytes) -> None:
        """Store bytes under a key, in place of earlier ones."""
