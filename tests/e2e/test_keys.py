"""Keys that are exchanged for others while jobs run."""

from __future__ import annotations

import base64
import json
import os
import urllib.error
import urllib.request
from http import HTTPStatus
from typing import TYPE_CHECKING

import pytest

from kubebox.errors import BoxError
from scripts.demo_cluster import NAMESPACE, RELEASE, TOKEN
from tests.support.e2e.slurm_cluster import rolled

if TYPE_CHECKING:
    from tests.support.e2e.slurm_cluster import Site

JWT, SLURM = "slurm-auth-jwt", "slurm-auth-slurm"
REST_PORT = 6820


def encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()


def write(site: Site, secret: str, key: str, value: bytes) -> None:
    site.cluster.patch("secret", secret, {"data": {key: encoded(value)}})


# ----------------------------------------------------------------------------------------------------- tokens


def token(site: Site) -> str:
    name = site.cluster.get("token", TOKEN)["spec"].get("secretRef", {}).get("name", f"{TOKEN}-jwt-slurm")
    return base64.b64decode(site.cluster.get("secret", name)["data"]["SLURM_JWT"]).decode()


def answer(port: int, bearer: str) -> int:
    """Ask slurmrestd for the nodes, and return the status of its answer."""
    url = f"http://127.0.0.1:{port}/slurm/v0.0.44/nodes/"
    request = urllib.request.Request(url, headers={"X-SLURM-USER-TOKEN": bearer})
    # Straight to loopback, whatever proxy the environment names.
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(request, timeout=30) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def test_new_jwt_key(site: Site) -> None:
    """With another JWT key, a Token is renewed and good, its old value is worthless, and jobs run on."""
    site.settled(2)
    job, old = site.start_job(), token(site)
    with site.cluster.forwarded(f"service/{RELEASE}-restapi", REST_PORT) as port:
        assert answer(port, old) == HTTPStatus.OK
        write(site, JWT, "jwt.key", os.urandom(32))
        site.until(lambda: token(site) != old, "there is another token")
        seconds = site.until(lambda: answer(port, token(site)) == HTTPStatus.OK, "the new token is taken")
        assert answer(port, old) == HTTPStatus.NETWORK_AUTHENTICATION_REQUIRED
    site.figures.append(f"{seconds:6.1f} s  from another JWT key until slurmrestd takes new tokens")
    job.assert_unharmed()
    job.end()
    site.settled(2)
    site.run_everywhere(2)


# -------------------------------------------------------------------------------------------- keys of daemons


def key_set(default: str, **keys: bytes) -> bytes:
    """Return a slurm.jwks: keys that are all believed, of which one is signed with."""
    entries = [
        {"alg": "HS256", "kty": "oct", "kid": name, "k": encoded(value)}
        | ({"use": "default"} if name == default else {})
        for name, value in keys.items()
    ]
    return json.dumps({"keys": entries}).encode()


@pytest.mark.long
def test_new_slurm_key(site: Site) -> None:
    """The key of all daemons is exchanged in three steps, never in one, and no step disturbs a job."""
    site.settled(2)
    old = base64.b64decode(site.cluster.get("secret", SLURM)["data"]["slurm.key"])
    new = os.urandom(64)

    job, before = site.start_job(), site.uids()
    with pytest.raises(BoxError, match=r"data\[slurm.key\]: is the key of Controller .*docs/guides/keys\.md"):
        write(site, SLURM, "slurm.key", new)

    # Everybody has to know the new key before anybody uses it.
    write(site, SLURM, "slurm.jwks", key_set("old", old=old, new=new))
    ref = f"slurmKey.secretRef.name={SLURM},slurmKey.secretRef.key=slurm.jwks"
    site.cluster.install(RELEASE, "slurm", NAMESPACE, "--reuse-values", "--set", ref)
    rolled(site, job, before)

    # Everybody uses it; the busy worker still signs with the old one, and is believed.
    job, before = site.start_job(), site.uids()
    write(site, SLURM, "slurm.jwks", key_set("new", old=old, new=new))
    rolled(site, job, before)

    before = site.uids()
    write(site, SLURM, "slurm.jwks", key_set("new", new=new))
    for name, uid in before.items():
        site.ready_again(name, uid)
    site.settled(2)
    site.run_everywhere(2)
