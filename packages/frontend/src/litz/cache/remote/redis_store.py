"""A Redis server as a remote store."""

from __future__ import annotations

from dataclasses import dataclass

import redis

_PREFIX = "litz:"
"""Beginning of all keys on the server."""

_TIMEOUT = 1.0
"""Seconds after which a connection, an answer or a write of the client fails, so that no thread waits for ever."""


@dataclass(frozen=True, slots=True)
class RedisStore:
    """The server that a client is for."""

    client: redis.Redis
    """The client, which connects when it is first used."""

    @staticmethod
    def at(url: str) -> RedisStore:
        """Return the store of a URL ``redis://``, ``rediss://`` or ``unix://``; raise ``ValueError`` for others."""
        return RedisStore(redis.Redis.from_url(url, socket_timeout=_TIMEOUT, socket_connect_timeout=_TIMEOUT))

    def get(self, key: str) -> bytes | None:
        """Return the bytes of a key, or ``None``."""
        found = self.client.get(_PREFIX + key)
        return found if isinstance(found, bytes) else None

    def put(self, key: str, data: bytes) -> None:
        """Store bytes under a key."""
        self.client.set(_PREFIX + key, data)
