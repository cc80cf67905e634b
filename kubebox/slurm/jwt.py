"""Tokens as slurmrestd takes them: HS256 over the key that slurmctld holds."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json


def mint(key: bytes, user: str, lifetime: float, now: float) -> str:
    """Sign a token with which `user` may speak to Slurm for `lifetime` seconds from `now`."""
    claims = {"iat": int(now), "exp": int(now + lifetime), "sun": user}
    signed = b".".join(
        _encode(json.dumps(part).encode()) for part in ({"alg": "HS256", "typ": "JWT"}, claims)
    )
    return (signed + b"." + _encode(hmac.digest(key, signed, hashlib.sha256))).decode()


def _encode(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")
