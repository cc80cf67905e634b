from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from slurm_operator.api import Cluster
from slurm_operator.api.cluster import ClusterSpec, ClusterToken
from slurm_operator.controllers.cluster import BACKOFF, claims_of, expiry, target
from slurm_operator.controllers.shared.connection_health import ConnectionProblem
from slurm_operator.kube.models.kinds import Secret
from slurm_operator.kube.models.meta import ObjectMeta
from slurm_operator.slurm import errors
from slurm_operator.slurm.rest.connections import ConnectionTarget
from slurm_operator.slurm.web_token import TokenClaims, mint
from tests.support.slurm.memory_cluster import Cluster as Scripted
from tests.support.slurm.memory_cluster import now, watching
from tests.support.slurm.views import node
from tests.support.virtual_time import virtual_time

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
TOKEN = Secret(data={"auth-token": b"abc.def\n", "ca.crt": b"PEM"})


def cluster(server: str = "http://rest:6820/", secret: str = "token") -> Cluster:  # noqa: S107 - a name
    return Cluster(spec=ClusterSpec(server=server, token=ClusterToken(secret_ref=secret)))


def test_url_token_and_authority_make_the_target() -> None:
    """The URL is brought into its normal form, the token is trimmed, and the authority is for https only."""
    plain = target(cluster(), TOKEN, None)
    assert isinstance(plain, ConnectionTarget)
    assert (plain.url, plain.token(), plain.ca) == ("http://rest:6820", "abc.def", None)
    secure = target(cluster("https://rest:6820"), TOKEN, None)
    assert isinstance(secure, ConnectionTarget)
    assert secure.ca == b"PEM"
    assert target(cluster("https://rest:6820"), Secret(data={"auth-token": b"abc.def"}), None) != secure


def test_equal_targets_need_no_new_connection() -> None:
    """The same URL and token are the same target, however they are written; another token is another."""
    assert target(cluster(), TOKEN, None) == target(cluster("http://rest:6820"), TOKEN, None)
    other = Secret(data={"auth-token": b"abc.deg"})
    assert target(cluster(), other, None) != target(cluster(), TOKEN, None)
    recreated = msgspec.structs.replace(cluster(), metadata=ObjectMeta(uid="another"))
    assert target(recreated, TOKEN, None) != target(cluster(), TOKEN, None), "a Cluster that was recreated"


def test_no_secret_is_shown() -> None:
    """A target that is printed shows where it leads, and nothing with which to get in."""
    shown = repr(target(cluster("https://rest:6820"), TOKEN, None))
    assert "https://rest:6820" in shown
    assert "abc" not in shown
    assert "PEM" not in shown


def test_the_override_wins_over_any_server() -> None:
    """With --slurm-api-override not even a wrong URL matters."""
    found = target(cluster("nonsense"), TOKEN, "http://localhost:6820")
    assert isinstance(found, ConnectionTarget)
    assert found.url == "http://localhost:6820"


@pytest.mark.parametrize(
    ("given", "secret", "reason", "words"),
    [
        (cluster("rest:6820"), TOKEN, "InvalidServer", "spec.server"),
        (cluster(""), TOKEN, "InvalidServer", "spec.server"),
        (cluster("http://rest:6820/slurm"), TOKEN, "InvalidServer", "path"),
        (cluster(secret=""), None, "SecretNotSet", "spec.token.secretRef"),
        (cluster(), None, "SecretNotFound", "'token'"),
        (cluster(), Secret(), "TokenNotFound", "'auth-token'"),
        (cluster(), Secret(data={"auth-token": b" \n"}), "TokenNotFound", "scontrol token"),
        (cluster(), Secret(data={"auth-token": b"SLURM JWT"}), "InvalidToken", "'token'"),
        (cluster(), Secret(data={"auth-token": b"\xff\xfe"}), "InvalidToken", "'auth-token'"),
        (cluster(), Secret(data={"auth-token": b"SLURM_JWT=abc.def\n"}), "InvalidToken", "SLURM_JWT="),
    ],
)
def test_what_is_wrong_is_named(given: Cluster, secret: Secret | None, reason: str, words: str) -> None:
    """Each thing that can be missing or wrong has a reason and names the field, the Secret or the key."""
    found = target(given, secret, None)
    assert isinstance(found, ConnectionProblem)
    assert found.reason == reason
    assert words in found.message
    assert "SLURM JWT" not in found.message


def test_a_failing_cluster_is_asked_again_within_seconds() -> None:
    """The pause after failures starts at a second and ends at five; after refusals it ends at 5 minutes."""
    assert 0 < BACKOFF.backoff(1) <= 1.0
    assert 2.5 <= BACKOFF.backoff(100) <= 5.0
    assert 2.5 <= BACKOFF.backoff(1, refused=True) <= 5.0
    assert 150.0 <= BACKOFF.backoff(100, refused=True) <= 300.0


@virtual_time
async def test_a_cluster_is_used_again_seconds_after_a_long_outage() -> None:
    """After six hours without an answer, the next list comes within seconds of the server's return."""
    cluster = Scripted(node("n1"))
    cluster.failures["nodes"] = errors.RestUnreachable("connection refused")
    async with watching(cluster, BACKOFF) as watched:
        await asyncio.sleep(6 * 3600.0)
        del cluster.failures["nodes"]
        back = now()
        await watched.until(lambda: watched.watch.view.listed_at is not None, limit=60.0)
        assert now() - back <= 6.0


def claims(life: timedelta | None, left: timedelta) -> TokenClaims:
    end = NOW + left
    return TokenClaims("slurm", None if life is None else end - life, end)


HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@pytest.mark.parametrize(
    ("life", "left", "words", "changes_in"),
    [
        (10 * HOUR, 3 * HOUR, "", HOUR),
        (10 * HOUR, 2 * HOUR, "2026-11-15T14:00:00Z", 2 * HOUR),
        (10 * HOUR, timedelta(0), "2026-11-15T12:00:00Z", None),
        (10 * HOUR, -HOUR, "2026-11-15T11:00:00Z", None),
        (365 * DAY, 25 * HOUR, "", HOUR),
        (365 * DAY, 23 * HOUR, "2026-11-16T11:00:00Z", 23 * HOUR),
        (365 * DAY, 300 * DAY, "", DAY),
        (None, 23 * HOUR, "2026-11-16T11:00:00Z", 23 * HOUR),
        (None, 25 * HOUR, "", HOUR),
    ],
)
def test_the_end_of_a_token_is_mentioned_in_time(
    life: timedelta | None, left: timedelta, words: str, changes_in: timedelta | None
) -> None:
    """In the last fifth of its life, at most a day before, and after its end; else not at all."""
    found = expiry(claims(life, left), "token", NOW)
    assert (words in found.note) if words else found.note == ""
    assert found.changes_in == (None if changes_in is None else changes_in.total_seconds())


def test_a_token_that_says_nothing_never_ends() -> None:
    """A token without expiry, or that is no JWT at all, is not mentioned."""
    assert expiry(None, "token", NOW).note == ""
    assert expiry(TokenClaims("slurm", NOW, None), "token", NOW).changes_in is None
    assert claims_of(TOKEN) is None
    assert claims_of(None) is None
    assert claims_of(Secret(data={"auth-token": b"\xff"})) is None


def test_claims_are_read_from_the_secret() -> None:
    """What the token in a Secret says of itself is read, with the newline that a file has at its end."""
    token = mint(b"key", "slurm", HOUR, NOW)
    found = claims_of(Secret(data={"auth-token": token.encode() + b"\n"}))
    assert found is not None
    assert found.expires_at == NOW + HOUR
