"""Cluster: the connection to a slurmrestd that this operator did not deploy.

A Cluster names a URL and a Secret. The Secret holds a token and, for `https`, may hold the authority that
signed the server's certificate. From these comes one connection, and from its view `status.isReady` and the
condition `Ready`. Another URL, token or authority replaces the connection; a Cluster that is deleted takes
its connection with it, without a finalizer, since nothing outside of this process has to be undone.

A cluster that cannot be reached is asked again after 1 s and then every 5 s, so that it is in use seconds
after an outage, however long that lasted. A refused token is tried ever less often, down to every 5 minutes:
it is not a matter of time. An edit of the Cluster or of its Secret has either asked at once.

The user provides the token, and the operator does not renew it. When it is about to expire, the condition's
message includes that.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from slurm_operator.api import Cluster, wellknown
from slurm_operator.controllers.shared.conditions import condition_changed
from slurm_operator.controllers.shared.connection_health import (
    GRACE,
    ConditionReporter,
    ConnectionHealth,
    ConnectionProblem,
    RecheckAfter,
    assess,
    health_changed,
    observe,
    unreadable,
)
from slurm_operator.kube.cache.referenced_objects import Referrer, enqueue_owners
from slurm_operator.kube.errors import KubeError
from slurm_operator.kube.models.meta import Key
from slurm_operator.kube.runtime import controller as runtime
from slurm_operator.kube.runtime.controller import Requeue
from slurm_operator.kube.runtime.sources import Channel, any_of, ignore_status
from slurm_operator.slurm.model.slurm_address import parse_url
from slurm_operator.slurm.rest.connections import ConnectionKey, ConnectionTarget
from slurm_operator.slurm.watch.watcher import WatchTiming
from slurm_operator.slurm.web_token import FixedToken, read

if TYPE_CHECKING:
    from slurm_operator.controllers.shared.wiring import Wiring
    from slurm_operator.kube.models.kinds import Secret
    from slurm_operator.slurm.model.view import ViewUpdate
    from slurm_operator.slurm.web_token import TokenClaims

NAME: Final = "cluster-controller"
FIELD_MANAGER: Final = f"{wellknown.FIELD_MANAGER}-cluster"
# No watch tells when a server that others run is back. To ask a dead one is a connection that is refused or
# times out, and the breaker lets only one in ten seconds through.
BACKOFF: Final = WatchTiming(failure_base=1.0, failure_cap=5.0, refused_base=5.0, refused_cap=5 * 60.0)

# The last fifth of a token's life is time to renew it, but a year's token is no matter of months.
_LAST_PART: Final = 0.2
_LONGEST_NOTICE: Final = timedelta(days=1)
_ASSIGNMENT: Final = b"SLURM_JWT="
# An event loop's timer is for hours, not for the years that some tokens last.
_LONGEST_SLEEP: Final = timedelta(days=1)


# ------------------------------------------------------------------------------------------------- decisions
def target(
    cluster: Cluster, secret: Secret | None, override: str | None
) -> ConnectionTarget | ConnectionProblem:
    """Decide where a Cluster's connection leads, and as whom."""
    name = cluster.token_secret_name
    try:
        url = override or parse_url(cluster.spec.server)
    except ValueError as error:
        return ConnectionProblem("InvalidServer", f"spec.server: {error}")
    if not name:
        return ConnectionProblem(
            "SecretNotSet", "spec.token.secretRef is empty: set the name of the Secret with the token"
        )
    if secret is None:
        return ConnectionProblem(
            "SecretNotFound", f"spec.token.secretRef: Secret {name!r} does not exist: create it"
        )
    data = secret.data or {}
    token = _token(name, data.get(wellknown.CLUSTER_AUTH_DATA_KEY, b""))
    if isinstance(token, ConnectionProblem):
        return token
    ca = data.get(wellknown.CLUSTER_CA_DATA_KEY) if url.startswith("https:") else None
    # A Cluster that was recreated may be another one, so it shares nothing with the one before.
    return ConnectionTarget(url, f"{cluster.metadata.uid} {token.fingerprint}", token, ca)


def _token(secret: str, text: bytes) -> FixedToken | ConnectionProblem:
    where = f"Secret {secret!r}, key {wellknown.CLUSTER_AUTH_DATA_KEY!r}"
    if not text.strip():
        return ConnectionProblem(
            "TokenNotFound",
            f"{where}: it has no token: put the output of `scontrol token` there, without SLURM_JWT=",
        )
    if text.lstrip().startswith(_ASSIGNMENT):
        return ConnectionProblem(
            "InvalidToken",
            f"{where}: the token starts with SLURM_JWT=, as `scontrol token` prints it: remove that",
        )
    try:
        return FixedToken(text.decode("utf-8", "replace"))
    except ValueError as error:
        return ConnectionProblem("InvalidToken", f"{where}: {error}")


def claims_of(secret: Secret | None) -> TokenClaims | None:
    """Read what the token in a Secret says about itself; None when it says nothing."""
    text = ((secret.data if secret else None) or {}).get(wellknown.CLUSTER_AUTH_DATA_KEY, b"")
    try:
        return read(text.decode("ascii").strip())
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class Expiry:
    """What there is to say about the end of a token, and after how many seconds that changes."""

    note: str
    changes_in: float | None


def expiry(claims: TokenClaims | None, secret: str, now: datetime) -> Expiry:
    """Decide whether the end of a token is near enough to be mentioned."""
    if claims is None or claims.expires_at is None:
        return Expiry("", None)
    end = claims.expires_at
    when = f"{end:%Y-%m-%dT%H:%M:%SZ}"
    notice = _LONGEST_NOTICE if claims.life is None else min(_LONGEST_NOTICE, _LAST_PART * claims.life)
    if now >= end:
        return Expiry(f"the token in Secret {secret!r} expired at {when}: put a new one there", None)
    if now >= end - notice:
        note = f"the token in Secret {secret!r} expires at {when}: put a new one there before"
        return Expiry(note, (end - now).total_seconds())
    return Expiry("", min(end - notice - now, _LONGEST_SLEEP).total_seconds())


# ---------------------------------------------------------------------------------------------------- wiring
def build(wiring: Wiring) -> runtime.Controller:
    """Wire the controller."""
    return ClusterController(wiring).controller


class ClusterController:
    """Keeps the connection of every Cluster; `timing` is how often each is asked."""

    def __init__(self, wiring: Wiring, *, timing: WatchTiming = BACKOFF, grace: float = GRACE) -> None:
        self._timing = timing
        self._grace = grace
        self._secrets = wiring.secrets
        self._connections = wiring.connections
        self._override = wiring.slurm_api_override
        self._reporter = ConditionReporter(
            wiring.client, wiring.events, Cluster, wellknown.CONDITION_READY, FIELD_MANAGER
        )
        self._clusters = wiring.manager.informer(Cluster)
        self._health: Channel[Key] = Channel()
        # The versions of Cluster and Secret that were reconciled last.
        self._seen: dict[Key, tuple[str, int, str]] = {}
        moved = condition_changed(wellknown.CONDITION_READY)
        self.controller = (
            runtime.Controller(NAME, self.reconcile, workers=wiring.workers["cluster"])
            .watch(self._clusters, predicate=any_of(ignore_status, moved))
            .watch_channel(self._health, lambda key: (key,))
            .watch_channel(self._secrets.changes, enqueue_owners(NAME))
        )
        self._connections.subscribe(self._updated)

    def _updated(self, key: ConnectionKey, update: ViewUpdate) -> None:
        if key.kind == "Cluster" and health_changed(update):
            self._health.send(Key(key.namespace, key.name))

    # ---------------------------------------------------------------------------------------------- reconcile
    async def reconcile(self, key: Key) -> Requeue | None:
        """Give a Cluster its connection and say how it is."""
        cluster = self._clusters.store.get(key)
        own = ConnectionKey("Cluster", key.namespace, key.name)
        if cluster is None or cluster.deleting:
            if key not in self._clusters.store.unreadable:
                self._connections.remove(own)
                self._secrets.want(Referrer(NAME, key), ())
                self._reporter.forget(key)
                self._seen.pop(key, None)
            return None
        try:
            secret = await self._secret(cluster)
        except KubeError:
            # The current token is unknown, so the existing connection stays.
            await self._say(cluster, unreadable("SecretUnreadable"))
            raise
        chosen = target(cluster, secret, self._override)
        if isinstance(chosen, ConnectionProblem):
            self._connections.remove(own)
            return await self._say(cluster, chosen.health)
        try:
            connection = self._connections.set(own, chosen, self._timing)
        except ValueError as error:
            self._connections.remove(own)
            note = f"Secret {cluster.token_secret_name!r}, key {wellknown.CLUSTER_CA_DATA_KEY!r}: {error}"
            return await self._say(cluster, ConnectionHealth(ready=False, reason="InvalidCA", message=note))
        if self._edited(cluster, secret) and connection.view.failure is not None:
            connection.watch.wake()
        now = asyncio.get_running_loop().time()
        health = assess(observe(connection), self._reporter.previous(cluster), now, grace=self._grace)
        return await self._say(cluster, health, claims_of(secret))

    async def _secret(self, cluster: Cluster) -> Secret | None:
        name = cluster.token_secret_name
        wanted = Key(cluster.metadata.namespace, name)
        self._secrets.want(Referrer(NAME, cluster.key), (wanted,) if name else ())
        return await self._secrets.get(wanted) if name else None

    def _edited(self, cluster: Cluster, secret: Secret | None) -> bool:
        """Return whether the Cluster's spec or its Secret has changed since the last reconcile."""
        version = "" if secret is None else secret.metadata.resource_version
        now = (cluster.metadata.uid, cluster.metadata.generation, version)
        before = self._seen.get(cluster.key)
        self._seen[cluster.key] = now
        return before is not None and before != now

    async def _say(
        self, cluster: Cluster, health: ConnectionHealth | RecheckAfter, claims: TokenClaims | None = None
    ) -> Requeue | None:
        end = expiry(claims, cluster.token_secret_name, datetime.now(UTC))
        if isinstance(health, ConnectionHealth) and end.note:
            health = replace(health, message=f"{health.message}; {end.note}")
        again = await self._reporter.say(
            cluster,
            health,
            isReady=isinstance(health, ConnectionHealth) and health.ready is True,
            observedGeneration=cluster.metadata.generation,
        )
        if end.changes_in is None:
            return again
        return Requeue(end.changes_in if again is None else min(end.changes_in, again.after))
