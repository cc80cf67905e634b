"""SSH host keys for login pods: made once, and then kept for ever.

Making them is the one slow thing in this package (RSA with 4,096 bits takes seconds of CPU): call it in a
thread, and only when no Secret with keys exists. The library for it is loaded only then: most operators never
make a key, and it is a tenth of the memory of one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

_RSA_BITS = 4096
_RSA_EXPONENT = 65537


def make_host_keys() -> dict[str, bytes]:
    """Make a private and a public key of each type, by the names of their files, in OpenSSH's formats."""
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - see above
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa  # noqa: PLC0415

    formats = serialization.PrivateFormat.OpenSSH, serialization.PublicFormat.OpenSSH
    keys: dict[str, PrivateKeyTypes] = {
        "ecdsa": ec.generate_private_key(ec.SECP256R1()),
        "ed25519": ed25519.Ed25519PrivateKey.generate(),
        "rsa": rsa.generate_private_key(_RSA_EXPONENT, _RSA_BITS),
    }
    files: dict[str, bytes] = {}
    for kind, key in keys.items():
        name = f"ssh_host_{kind}_key"
        plain = serialization.NoEncryption()
        files[name] = key.private_bytes(serialization.Encoding.PEM, formats[0], plain)
        public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, formats[1])
        files[f"{name}.pub"] = public + b"\n"
    return files
