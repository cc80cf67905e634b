"""Copy the images of a release from their archives into a registry; only Python 3.11 or newer is needed.

    python3 push_images.py registry.example.com/slurm *.oci.tar
    python3 push_images.py --plain-http 10.0.0.1:5000 *.oci.tar

The registry must allow anonymous writes, or basic authentication by REGISTRY_USERNAME and REGISTRY_PASSWORD.
For one that hands out tokens (most public ones), use skopeo, crane or docker instead: the archives are
OCI image layouts, and `docker load` reads them, too. What is in the registry already is not sent again.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import hashlib
import http.client
import json
import os
import sys
import tarfile
import urllib.parse
from typing import IO, Any

_SECONDS = 300.0
_FOUND, _CREATED, _ACCEPTED = 200, 201, 202
_NAME = "io.containerd.image.name"


class PushError(Exception):
    """The registry refused something, or an archive is broken."""


class Registry:
    """The part of a registry below one prefix."""

    def __init__(self, address: str, *, plain_http: bool = False) -> None:
        host, _, prefix = address.rstrip("/").partition("/")
        kind = http.client.HTTPConnection if plain_http else http.client.HTTPSConnection
        self._connection = kind(host, timeout=_SECONDS)
        self.address, self._prefix = address.rstrip("/"), f"{prefix}/" if prefix else ""
        user, password = os.environ.get("REGISTRY_USERNAME"), os.environ.get("REGISTRY_PASSWORD", "")
        secret = base64.b64encode(f"{user}:{password}".encode()).decode()
        self._headers = {"Authorization": f"Basic {secret}"} if user else {}

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def _send(
        self, method: str, path: str, body: bytes | IO[bytes] | None = None, **headers: str
    ) -> http.client.HTTPResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self._connection.request(method, path, body, {**self._headers, **named})
        return self._connection.getresponse()

    def _expect(self, reply: http.client.HTTPResponse, status: int, what: str) -> None:
        text = reply.read().decode(errors="replace")[:500]
        if reply.status != status:
            raise PushError(f"{self.address}: {what}: HTTP {reply.status} {text}")

    def has(self, repository: str, kind: str, reference: str, accept: str = "*/*") -> bool:
        """Return whether a blob or a manifest is there."""
        path = f"/v2/{self._prefix}{repository}/{kind}/{reference}"
        reply = self._send("HEAD", path, Accept=accept)
        reply.read()
        return reply.status == _FOUND

    def push_blob(self, repository: str, digest: str, content: IO[bytes], size: int) -> None:
        """Send a blob."""
        reply = self._send("POST", f"/v2/{self._prefix}{repository}/blobs/uploads/", b"")
        place = urllib.parse.urlsplit(reply.headers.get("Location", ""))
        self._expect(reply, _ACCEPTED, f"begin to send to {repository}")
        query = "&".join(filter(None, (place.query, f"digest={urllib.parse.quote(digest)}")))
        kind = "application/octet-stream"
        reply = self._send(
            "PUT", f"{place.path}?{query}", content, Content_Length=str(size), Content_Type=kind
        )
        self._expect(reply, _CREATED, f"send {digest} to {repository}")

    def push_manifest(self, repository: str, reference: str, content: bytes, kind: str) -> None:
        """Send a manifest under a tag."""
        path = f"/v2/{self._prefix}{repository}/manifests/{reference}"
        reply = self._send("PUT", path, content, Content_Type=kind)
        self._expect(reply, _CREATED, f"name {repository}:{reference}")


def push_archive(registry: Registry, path: str) -> list[str]:
    """Copy all images of an archive and return their names there, by tag and digest."""
    with tarfile.open(path) as archive:
        index = json.loads(_read(archive, "index.json"))
        return [_push_image(registry, archive, entry) for entry in index["manifests"]]


def _push_image(registry: Registry, archive: tarfile.TarFile, entry: dict[str, Any]) -> str:
    repository, _, tag = entry["annotations"][_NAME].rpartition("/")[2].partition(":")
    document = _read(archive, _blob(entry["digest"]))
    if f"sha256:{hashlib.sha256(document).hexdigest()}" != entry["digest"]:
        raise PushError(f"{repository}: its manifest has another digest than the index says")
    manifest = json.loads(document)
    for part in (manifest["config"], *manifest["layers"]):
        if not registry.has(repository, "blobs", part["digest"]):
            with _open(archive, _blob(part["digest"])) as content:
                registry.push_blob(repository, part["digest"], content, part["size"])
    registry.push_manifest(repository, tag, document, entry["mediaType"])
    return f"{registry.address}/{repository}:{tag}@{entry['digest']}"


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _open(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    try:
        content = archive.extractfile(name)
    except KeyError:
        content = None
    if content is None:
        raise PushError(f"the archive has no {name}: it is no archive of images, or not a whole one")
    return content


def _read(archive: tarfile.TarFile, name: str) -> bytes:
    with _open(archive, name) as content:
        return content.read()


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--plain-http", action="store_true", help="without TLS: a registry of this network")
    parser.add_argument("registry", help="HOST[:PORT][/PREFIX]")
    parser.add_argument("archives", nargs="+", metavar="ARCHIVE")
    options = parser.parse_args()
    try:
        with contextlib.closing(Registry(options.registry, plain_http=options.plain_http)) as registry:
            for path in options.archives:
                for name in push_archive(registry, path):
                    print(name, flush=True)
    except (PushError, OSError, http.client.HTTPException, tarfile.TarError) as error:
        print(f"push_images.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
