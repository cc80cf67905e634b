"""push_images.py, against a real registry."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from kubebox.images.oci import Image, compressed, folder_layer, write_bundle
from scripts.release import push
from scripts.release.registry import local_registry

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

PASSWORD = "secret"  # noqa: S105 - of a registry that lives for a second
USERS = "me:$2b$04$Iq2SaEG/ODRa17rHpRPaaevCVRsWfMFcX17RQEHTnJYAE.6Alx4Im\n"


def archive(folder: Path) -> tuple[Path, Image]:
    """Return an archive with one small image."""
    (folder / "tree").mkdir()
    (folder / "tree" / "file").write_text("content")
    layer = compressed(folder_layer(folder / "tree", folder / "layer.tar"))
    image = Image("docker.io/library/small:1", [layer])
    write_bundle(folder / "small.oci.tar", [image], docker=True)
    return folder / "small.oci.tar", image


def push_images(address: str, path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", push.__file__, "--plain-http", f"{address}/team", str(path)]
    return subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


def test_image_is_in_the_registry_by_tag_and_digest(tmp_path: Path) -> None:
    """What was pushed is there under both names; pushing it again changes nothing."""
    path, image = archive(tmp_path)
    with local_registry("127.0.0.1", tmp_path / "registry", print) as address:
        for _ in range(2):
            done = push_images(address, path)
            assert done.stdout == f"{address}/team/small:1@{image.digest()}\n"
        kind = "application/vnd.oci.image.manifest.v1+json"
        with contextlib.closing(push.Registry(f"{address}/team", plain_http=True)) as registry:
            for reference in ("1", image.digest()):
                assert registry.has("small", "manifests", reference, kind)
            assert not registry.has("small", "manifests", "2", kind)


def test_password_is_sent_where_one_is_asked_for(tmp_path: Path) -> None:
    """Without a password the registry refuses, and the message has its status; with it, it accepts."""
    path, _ = archive(tmp_path)
    with local_registry("127.0.0.1", tmp_path / "registry", print, users=USERS) as address:
        refused = push_images(address, path)
        assert (refused.returncode, "HTTP 401" in refused.stderr) == (1, True)
        done = push_images(address, path, REGISTRY_USERNAME="me", REGISTRY_PASSWORD=PASSWORD)
        assert (done.returncode, done.stderr) == (0, "")


def test_broken_archive_is_refused(tmp_path: Path) -> None:
    """A file that is no archive of images ends with a message, not with half an image."""
    path, _ = archive(tmp_path)
    (tmp_path / "other.tar").write_bytes(path.read_bytes()[:512])
    with local_registry("127.0.0.1", tmp_path / "registry", print) as address:
        done = push_images(address, tmp_path / "other.tar")
    assert done.returncode == 1
    assert done.stderr.startswith("push_images.py: ")
