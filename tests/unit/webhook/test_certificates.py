"""Which pair is in service, and when another one takes its place."""

from __future__ import annotations

import os
import ssl
from typing import TYPE_CHECKING

import pytest

from kubebox import pki
from slurm_operator.kube.errors import ConfigError
from slurm_operator.webhook.certificates import Certificates, Pair, read_pair, serving_context
from tests.support.webhook.certificate_files import SecretVolume, der, key_pem, pem

if TYPE_CHECKING:
    from pathlib import Path

AUTHORITY = pki.make_authority("webhook-ca")


def plain_files(folder: Path) -> bytes:
    """Write a new pair over the files, as a person would."""
    certificate, key = pki.issue(AUTHORITY, "webhook", addresses=["127.0.0.1"])
    (folder / "tls.crt").write_bytes(pem(certificate))
    (folder / "tls.key").write_bytes(key_pem(key))
    return der(certificate)


async def test_nothing_is_served_without_files(tmp_path: Path) -> None:
    """Without files there is no context, and a sentence says which one is missing."""
    certificates = Certificates(tmp_path)
    certificates.refresh()
    assert not certificates.usable.is_set()
    assert "tls.crt: No such file or directory" in certificates.problem
    assert certificates.leaf is None
    with pytest.raises(ConfigError, match="no usable certificate"):
        certificates.context()


async def test_a_swapped_volume_is_taken_over(tmp_path: Path) -> None:
    """The pair that one move of a symbolic link brings is in service after the next look."""
    volume = SecretVolume(tmp_path)
    certificates = Certificates(tmp_path)
    for _ in range(3):
        wanted = volume.issue(AUTHORITY)
        certificates.refresh()
        assert (certificates.leaf, certificates.problem, certificates.usable.is_set()) == (wanted, "", True)


async def test_plain_files_are_taken_over(tmp_path: Path) -> None:
    """Files that are written over are seen by their time stamps."""
    certificates = Certificates(tmp_path)
    for number in range(3):
        wanted = plain_files(tmp_path)
        os.utime(tmp_path / "tls.crt", ns=(number, number))
        certificates.refresh()
        assert certificates.leaf == wanted


@pytest.mark.parametrize(
    "broken", [b"", b"text", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
async def test_a_broken_pair_changes_nothing(tmp_path: Path, broken: bytes) -> None:
    """What cannot be used leaves the former pair in service, and a good one after it is taken."""
    volume, certificates = SecretVolume(tmp_path), Certificates(tmp_path)
    wanted = volume.issue(AUTHORITY)
    certificates.refresh()
    volume.write(tls_crt=broken, tls_key=b"")
    certificates.refresh()
    assert (certificates.leaf, certificates.problem) == (wanted, "")
    wanted = volume.issue(AUTHORITY)
    certificates.refresh()
    assert certificates.leaf == wanted


async def test_files_that_vanish_change_nothing(tmp_path: Path) -> None:
    """A volume that is gone for a moment does not end the service."""
    certificates = Certificates(tmp_path)
    wanted = plain_files(tmp_path)
    certificates.refresh()
    (tmp_path / "tls.key").unlink()
    certificates.refresh()
    assert (certificates.leaf, certificates.problem) == (wanted, "")


def test_both_files_are_of_one_moment(tmp_path: Path) -> None:
    """Both halves are read from where the first leads, not each by its own link."""
    volume = SecretVolume(tmp_path)
    volume.write(tls_crt=b"old certificate", tls_key=b"old key")
    (tmp_path / "tls.crt").unlink()
    (tmp_path / "tls.crt").symlink_to("..version1/tls.crt")
    volume.write(tls_crt=b"new certificate", tls_key=b"new key")
    assert read_pair(tmp_path) == Pair(b"old certificate", b"old key")


def test_files_that_are_linked_one_by_one_are_read(tmp_path: Path) -> None:
    """A person may link certificate and key from two folders."""
    for name in ("a/tls.crt", "b/secret.key"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(name.encode())
    folder = tmp_path / "certs"
    folder.mkdir()
    (folder / "tls.crt").symlink_to("../a/tls.crt")
    (folder / "tls.key").symlink_to("../b/secret.key")
    assert read_pair(folder) == Pair(b"a/tls.crt", b"b/secret.key")


def test_a_pair_keeps_its_key_to_itself() -> None:
    """No log line can show a key, not even by accident."""
    certificate, key = pki.issue(AUTHORITY, "webhook", addresses=["127.0.0.1"])
    assert "PRIVATE" not in repr(Pair(pem(certificate), key_pem(key)))


def test_old_protocols_are_off(tmp_path: Path) -> None:
    """Nothing below TLS 1.2 is spoken, and no session outlives its certificate."""
    plain_files(tmp_path)
    context = serving_context(read_pair(tmp_path), "here")
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.options & ssl.OP_NO_TICKET
    assert context.num_tickets == 0
