"""How the identity of a media item is written."""

from __future__ import annotations

import hashlib


def keyed_identity(identity: str, secret: bytes) -> int:
    """Keyed hash of a media identity, 64 bits: clients choose identities, and content hashes tell content."""
    digest = hashlib.blake2b(identity.encode(), key=secret, digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)
