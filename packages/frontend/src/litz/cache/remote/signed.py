"""The remote cache as lookups use it: signed entries, with bounds on time, and dropped after failures.

An entry is executed once it is read, and a remote store may be written by anyone, so each entry is signed with a key
that the machines share (HMAC-SHA-256 over its name and content). Nothing is used that another key, or none, signed.
"""

from __future__ import annotations

import atexit
import functools
import hmac
import logging
import os
import queue
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late
from importlib import import_module
from urllib.parse import urlsplit

from litz.cache.mega_cache import decoded, encoded
from litz.cache.remote.protocol import RemoteStore
from litz.notices import log_once
from litz.settings import Config

log = logging.getLogger(__name__)

LOOKUP_SECONDS = 0.05
"""Longest that a lookup waits for an answer."""

EXIT_SECONDS = 1.0
"""Longest that the end of the process waits for entries that were not sent yet."""

MOST_FAILURES = 3
"""Failures in sequence after which the remote cache is not asked again by this process."""

_WAITING = 256
"""Most entries that wait to be sent; further ones are not sent."""

_CONTEXT, _SUM = b"litz cache entry 1\n", 32
"""Text that signatures begin with, which no other use of the key has, and their length."""

_REDIS, _FILES = "litz.cache.remote.redis_store", "litz.cache.remote.file_store"
"""Modules of the stores; imported for URLs of their kind, since they import packages that other programs lack."""

_SCHEMES = ("redis", "rediss", "unix")
"""Schemes of URLs of Redis; fsspec knows the others."""


def remote_cache(config: Config) -> SignedCache | None:
    """Return the remote cache that ``config`` names, one for each process; ``None``, with one log line, without a key
    or where its package is missing."""
    if not config.cache_remote_key:
        log_once(
            "litz: the remote cache is not used: LITZ_CACHE_REMOTE_KEY, the key of its machines, is not set"
        )
        return None
    return _of_process(config.cache_remote, config.cache_remote_key, os.getpid())


@functools.cache
def _of_process(url: str, key: str, process: int) -> SignedCache | None:
    """Return the remote cache of a URL; its threads belong to this ``process``."""
    shown_as = _shown(url)
    scheme = urlsplit(url).scheme
    try:
        if scheme in _SCHEMES:
            store: RemoteStore = import_module(_REDIS).RedisStore.at(url)
        else:
            store = import_module(_FILES).FileStore.at(url)
    except Exception as error:  # of a package that is missing or does not know the URL
        extra = "redis" if scheme in _SCHEMES else "fsspec"
        hint = (
            f"pip install 'litz[{extra}]'" if isinstance(error, ImportError) else "LITZ_CACHE_REMOTE names it"
        )
        log_once(f"litz: the remote cache {shown_as} is not used: {type(error).__name__}: {hint}")
        return None
    return SignedCache(store, key.encode(), shown_as)


class SignedCache:
    """Signed entries in a remote store.

    Lookups wait for :data:`LOOKUP_SECONDS` at most; entries are sent by a thread. Neither raises.
    """

    def __init__(self, store: RemoteStore, key: bytes, shown_as: str) -> None:
        """``shown_as`` names the store in log lines."""
        self._store, self._key, self._shown_as = store, key, shown_as
        self._failures, self._dropped = 0, False
        self._lock = threading.Lock()
        self._waiting: queue.Queue[tuple[str, Mapping[str, bytes]]] = queue.Queue(_WAITING)
        self._unsent = 0
        self._sent = threading.Condition(self._lock)
        self._sender: threading.Thread | None = None

    def fetch(self, kind: str, key: str) -> Mapping[str, bytes] | None:
        """Return the verified files of an entry; ``None`` where there is none, none in time, or one of another key."""
        if self._dropped:
            return None
        name = f"{kind}/{key}"
        answer: Future[bytes | None] = Future()
        # A thread of its own, which nothing waits for: a store that hangs holds up neither others nor the exit.
        threading.Thread(target=_answer, args=(answer, self._store, name), daemon=True).start()
        try:
            data = answer.result(LOOKUP_SECONDS)
        except Late:
            self._failed(f"no answer in {1e3 * LOOKUP_SECONDS:.0f} ms")
            return None
        except Exception as error:
            self._failed(_described(error))
            return None
        self._failures = 0
        return None if data is None else self._verified(name, data)

    def offer(self, kind: str, key: str, files: Mapping[str, bytes]) -> None:
        """Send an entry, later; it is not sent where too many wait, or the process ends before."""
        if self._dropped:
            return
        with self._lock:
            if self._sender is None:
                self._sender = threading.Thread(target=self._send, daemon=True, name="litz-remote-cache")
                self._sender.start()
                atexit.register(self.finish)
            try:
                self._waiting.put_nowait((f"{kind}/{key}", files))
            except queue.Full:
                log.debug("the remote cache is slow: %s/%s is not sent", kind, key)
            else:
                self._unsent += 1

    def finish(self, seconds: float = EXIT_SECONDS) -> bool:
        """Wait until all entries are sent, at most for ``seconds``; return False where some are not."""
        with self._sent:
            return self._sent.wait_for(lambda: not self._unsent or self._dropped, seconds)

    def _send(self) -> None:
        """Send entries as they come."""
        while True:
            name, files = self._waiting.get()
            try:
                if not self._dropped:
                    content = encoded(files)
                    self._store.put(name, self._signature(name, content) + content)
            except Exception as error:
                self._failed(_described(error))
            finally:
                with self._sent:
                    self._unsent -= 1
                    self._sent.notify_all()

    def _verified(self, name: str, data: bytes) -> Mapping[str, bytes] | None:
        """Return the files of an entry if it is signed with the key; else ``None``, with one log line for the store."""
        content = data[_SUM:]
        if not hmac.compare_digest(data[:_SUM], self._signature(name, content)):
            log_once(
                f"litz: the remote cache {self._shown_as} has entries that the key did not sign: none is used"
            )
            log.debug("%s is damaged, or signed for another name or with another key", name)
            return None
        try:
            return decoded(content)
        except (ValueError, TypeError) as error:  # another version of litz signed it
            log_once(f"litz: the remote cache {self._shown_as} has entries of another form: none is used")
            log.debug("%s cannot be read: %s", name, error)
            return None

    def _signature(self, name: str, content: bytes) -> bytes:
        """Return the signature of an entry, over its name and its content."""
        return hmac.digest(self._key, _CONTEXT + name.encode() + b"\n" + content, "sha256")

    def _failed(self, why: str) -> None:
        """Count a failure; the last one that is tolerated is a log line."""
        with self._sent:
            self._failures += 1
            log.debug("the remote cache %s failed: %s", self._shown_as, why)
            if self._failures < MOST_FAILURES or self._dropped:
                return
            self._dropped = True
            self._sent.notify_all()
        log_once(f"litz: the remote cache {self._shown_as} is not used any more by this process: {why}")


def _answer(answer: Future[bytes | None], store: RemoteStore, name: str) -> None:
    """Ask a store for an entry; the answer is its bytes or its error."""
    try:
        answer.set_result(store.get(name))
    except BaseException as error:
        answer.set_exception(error)


def _described(error: BaseException) -> str:
    """Return an error by its type: its text may contain a password."""
    return type(error).__name__


def _shown(url: str) -> str:
    """Return a URL without user, password and query."""
    given = urlsplit(url)
    return f"{given.scheme}://{given.netloc.rpartition('@')[2]}{given.path}"
