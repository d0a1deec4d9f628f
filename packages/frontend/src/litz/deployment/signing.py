"""Signatures of models: Ed25519, over the manifest, which has the checksum of everything else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

try:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
except ImportError as error:
    from litz_ir.errors import ArtifactError

    raise ArtifactError(
        "signatures need the package cryptography", hint="pip install litz[signing]"
    ) from error

from litz_ir.errors import ArtifactError

_RAW = 32
"""Bytes of a key that is not in PEM."""


def signature(manifest: bytes, key: Ed25519PrivateKey | bytes) -> bytes:
    """Return the signature of a manifest, 64 bytes.

    ``key`` is a private key of the package cryptography, its 32 bytes, or its text in PEM without a password. Raises
    :class:`ArtifactError` for another one.
    """
    found: Any = key
    if isinstance(key, bytes):
        found = _read(
            key, Ed25519PrivateKey.from_private_bytes, lambda text: load_pem_private_key(text, None)
        )
    if not isinstance(found, Ed25519PrivateKey):
        raise ArtifactError(f"a model is signed with an Ed25519 key, got {type(found).__name__}")
    return found.sign(manifest)


def check(manifest: bytes, signed: bytes, trusted: Sequence[Ed25519PublicKey | bytes], where: str) -> None:
    """Raise :class:`ArtifactError` where none of the trusted keys signed a manifest.

    Keys are public keys of the package cryptography, their 32 bytes, or their texts in PEM.
    """
    for key in trusted:
        found: Any = key
        if isinstance(key, bytes):
            found = _read(key, Ed25519PublicKey.from_public_bytes, load_pem_public_key)
        if not isinstance(found, Ed25519PublicKey):
            raise ArtifactError(f"trusted keys are Ed25519 keys, got {type(found).__name__}")
        try:
            found.verify(signed, manifest)
        except InvalidSignature:
            continue
        return
    raise ArtifactError(f"none of the trusted keys signed {where}", hint="load a copy from its author")


def _read(key: bytes, raw: Any, pem: Any) -> Any:
    """Return a key of bytes; raise :class:`ArtifactError` for bytes that are none."""
    try:
        return raw(key) if len(key) == _RAW else pem(key)
    except (ValueError, TypeError) as error:
        raise ArtifactError(f"a key cannot be read: {error}") from error
