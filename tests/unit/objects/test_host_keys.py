"""SSH host keys, read by those who will use them."""

from __future__ import annotations

import subprocess
import sys

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_private_key,
    load_ssh_public_key,
)

from slurm_operator.api import wellknown
from slurm_operator.objects.host_keys import make_host_keys


def test_host_keys() -> None:
    """There is a pair of each type, private in OpenSSH's format, and the public key belongs to it."""
    files = make_host_keys()
    assert set(files) == {
        f"ssh_host_{kind}_key{end}" for kind in wellknown.SSH_HOST_KEY_TYPES for end in ("", ".pub")
    }
    private = {
        kind: load_ssh_private_key(files[f"ssh_host_{kind}_key"], None)
        for kind in wellknown.SSH_HOST_KEY_TYPES
    }
    for kind, key in private.items():
        public = load_ssh_public_key(files[f"ssh_host_{kind}_key.pub"])
        own = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        assert own == public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    assert isinstance(private["ecdsa"], ec.EllipticCurvePrivateKey)
    assert isinstance(private["ecdsa"].curve, ec.SECP256R1)
    assert isinstance(private["ed25519"], ed25519.Ed25519PrivateKey)
    assert isinstance(private["rsa"], rsa.RSAPrivateKey)
    assert private["rsa"].key_size == 4096


def test_the_manager_starts_without_the_library() -> None:
    """The library that makes keys is not loaded with the manager, nor is one for tokens."""
    program = "import sys, slurm_operator.process; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "aiohttp" in loaded.stdout.split()
    assert not {"cryptography", "jwt", "OpenSSL"} & {*loaded.stdout.split()}
