"""SlurmClient: for each Controller the connection to its slurmrestd, and the condition `SlurmApiReady`.

Where a connection leads is decided by `choose`: to the Cluster that the Controller's annotation names or that
has its own name, else to the oldest RestApi of the Controller. A Cluster has a connection of its own (see
`cluster`), which the Controller then shares; its condition repeats the Cluster's word. To a RestApi the
operator goes as the Slurm user `slurm`, with tokens that it signs with the Controller's own JWT key; they are
renewed inside the connection, which stays.

What is missing (RestApi, Cluster, Secret, the key in it) takes the connection away and has a reason of its
own; each is watched, so the condition heals the moment it appears. What exists and cannot be read is not
missing: the connection stays as it is. A Controller that was recreated gets a connection of its own, since it
may be another cluster. Nothing here polls: a health that changes comes from the connection's watch through a
channel, and a requeue is asked for only while a failure is young. A connection that fails is tried ever
less often; when a RestApi of the Controller becomes ready, it is tried at once, also if it leads through a
Cluster: that may well lead to this very RestApi.

slurmrestd reports the name of its cluster. If the workers of a Controller join a cluster of another name, the
condition says so, and the connection tells this Controller nothing, while it may serve others (`clients`).

A Controller whose slurmctld is external vanishes at once when it is deleted, and its Slurm goes on. So its
connection stays while NodeSets that are to be drained still name it, as long as its RestApi or Cluster and
its Secret are there. The operator remembers what such a Controller was only until it ends.

Changes of Slurm nodes are passed on into `wiring.node_events`, for the NodeSets.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from slurm_operator.api import Cluster, Controller, NodeSet, RestApi, wellknown
from slurm_operator.api.shared import find_condition
from slurm_operator.controllers.shared.conditions import condition_changed, condition_rose, true_since
from slurm_operator.controllers.shared.connection_health import (
    CONNECTING,
    GRACE,
    ConditionReporter,
    ConnectionHealth,
    ConnectionProblem,
    RecheckAfter,
    assess,
    health_changed,
    mismatch,
    observe,
    unreadable,
)
from slurm_operator.controllers.shared.node_events import SlurmNodeEvent
from slurm_operator.kube.cache.referenced_objects import Referrer, enqueue_owners
from slurm_operator.kube.errors import KubeError
from slurm_operator.kube.models.meta import Key, T
from slurm_operator.kube.runtime import controller as runtime
from slurm_operator.kube.runtime.sources import Channel, any_of, ignore_status
from slurm_operator.slurm.errors import WrongCluster
from slurm_operator.slurm.model.slurm_address import parse_url
from slurm_operator.slurm.rest.connections import ConnectionKey, ConnectionTarget
from slurm_operator.slurm.web_token import MintedToken

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from slurm_operator.controllers.shared.wiring import Wiring
    from slurm_operator.kube.models.kinds import Secret
    from slurm_operator.kube.models.store import Change, Store
    from slurm_operator.kube.runtime.controller import Requeue
    from slurm_operator.slurm.model.view import ViewUpdate
    from slurm_operator.slurm.rest.connections import Connection

NAME: Final = "slurmclient-controller"
# A field manager of its own: other controllers write other conditions of the same Controller.
FIELD_MANAGER: Final = f"{wellknown.FIELD_MANAGER}-slurmclient"
TOKEN_LIFETIME: Final = timedelta(minutes=15)
_NEVER: Final = datetime.max.replace(tzinfo=UTC)
_NEED_SLURM: Final = frozenset({wellknown.FINALIZER_DRAIN, wellknown.FINALIZER_RESERVATION})
_NONE_UNREAD: Final[Mapping[str, str]] = MappingProxyType({})


# ------------------------------------------------------------------------------------------------- decisions
def cluster_ref(controller: Controller) -> str:
    """Return the name of the Cluster that a Controller asks for, empty if it does not."""
    return controller.metadata.annotations.get(wellknown.ANNOTATION_CLUSTER_REF, "").strip()


def choose(
    controller: Controller,
    restapis: Sequence[RestApi],
    clusters: Sequence[Cluster],
    *,
    unread_restapis: Mapping[str, str] = _NONE_UNREAD,
    unread_clusters: Mapping[str, str] = _NONE_UNREAD,
) -> RestApi | Cluster | ConnectionProblem | ConnectionHealth:
    """Decide through what a Controller's cluster is reached; all lists are of its namespace.

    `unread_…` are those that exist and could never be read: their names, and why. A `ConnectionHealth`
    means that these keep the answer from being known.
    """
    name = controller.metadata.name
    alive = {cluster.metadata.name: cluster for cluster in clusters if not cluster.deleting}
    wanted = cluster_ref(controller)
    if (first := wanted or name) in unread_clusters:
        return _unread("Cluster", first, unread_clusters[first])
    if wanted:
        found = alive.get(wanted)
        return found or ConnectionProblem(
            "ClusterNotFound",
            f"The annotation {wellknown.ANNOTATION_CLUSTER_REF} names Cluster {wanted!r}, which does not "
            f"exist in namespace {controller.metadata.namespace}: create it, or remove the annotation to use "
            "a RestApi",
        )
    if name in alive:
        return alive[name]
    mine = [restapi for restapi in restapis if restapi.spec.controller_ref.name == name]
    if not mine and unread_restapis:
        # One of them may be the one. Beside one that can be read they do not matter: all lead to slurmctld.
        first = min(unread_restapis)
        return _unread("RestApi", first, unread_restapis[first])
    if not mine:
        return ConnectionProblem(
            "RestApiNotFound",
            f"No RestApi has controllerRef.name {name!r}, and there is no Cluster {name!r}: create one of "
            "them, since workers cannot be drained or removed without it",
        )
    return min(mine, key=_seniority)


def _unread(kind: str, name: str, error: str) -> ConnectionHealth:
    message = f"{kind} {name!r} cannot be read, so the connection stays as it is; fix it: {error}"
    return ConnectionHealth(None, f"{kind}Unreadable", message)


def _seniority(restapi: RestApi) -> tuple[bool, datetime, str]:
    """Order by age; what is being deleted comes last."""
    metadata = restapi.metadata
    return restapi.deleting, metadata.creation_timestamp or _NEVER, metadata.name


def signing_key(controller: Controller, secret: Secret | None) -> bytes | ConnectionProblem:
    """Find the key that signs the operator's tokens in the Secret that the Controller names."""
    selector = controller.jwt_key
    if selector is None or not selector.name:
        return ConnectionProblem(
            "JwtKeyNotSet",
            "spec.jwtKeyRef is not set: name the Secret and key with the cluster's jwt.key, or create a "
            "Cluster with a token",
        )
    if secret is None:
        return ConnectionProblem(
            "JwtSecretNotFound", f"spec.jwtKeyRef: Secret {selector.name!r} does not exist: create it"
        )
    key = (secret.data or {}).get(selector.key)
    if not key:
        state = f"has no key {selector.key!r}" if key is None else f"is empty under the key {selector.key!r}"
        return ConnectionProblem(
            "JwtKeyNotFound",
            f"spec.jwtKeyRef: Secret {selector.name!r} {state}: put the cluster's jwt.key there",
        )
    return key


def target(
    controller: Controller, restapi: RestApi, secret: Secret | None, override: str | None
) -> ConnectionTarget | ConnectionProblem:
    """Decide where a Controller's own connection leads, and as whom."""
    signed_with = signing_key(controller, secret)
    if isinstance(signed_with, ConnectionProblem):
        return signed_with
    try:
        url = override or parse_url(restapi.server_url)
    except ValueError as error:
        where = f"RestApi {restapi.metadata.name!r}, spec.service.port {restapi.spec.service.port}"
        return ConnectionProblem("InvalidServer", f"{where}: {error}")
    token = MintedToken(signed_with, wellknown.SLURM_USER, TOKEN_LIFETIME)
    return ConnectionTarget(url, f"{controller.metadata.uid} {token.fingerprint}", token)


def expected_cluster(controller: Controller) -> str:
    """Return the name of the Slurm cluster that the workers of a Controller join; empty if it is not stated.

    Where this operator renders slurm.conf, the name is in it. An external slurmctld has a name of its own.
    """
    return controller.spec.cluster_name if controller.spec.external else controller.cluster_name


def needed(nodesets: Iterable[NodeSet], controller: str) -> bool:
    """Return whether a NodeSet of a Controller, all of one namespace, needs Slurm before it may go."""
    return any(
        nodeset.spec.controller_ref.name == controller
        and not _NEED_SLURM.isdisjoint(nodeset.metadata.finalizers)
        for nodeset in nodesets
    )


class Serving(NamedTuple):
    """Which RestApi leads to a cluster, and since when it is ready; None while it is not."""

    restapi: str
    since: datetime | None


def serving(restapi: RestApi) -> Serving:
    """Return since when a RestApi is ready."""
    return Serving(restapi.metadata.uid, true_since(restapi, wellknown.CONDITION_READY))


def came_back(before: Serving | None, now: Serving) -> bool:
    """Return whether a RestApi has become ready since the last reconcile, also if it was ready then."""
    return before is not None and now.since is not None and now != before


def mirror(cluster: Cluster) -> ConnectionHealth:
    """Repeat what a Cluster says about its connection, for a Controller that shares it."""
    name = cluster.metadata.name
    ready = find_condition(cluster.status.conditions, wellknown.CONDITION_READY)
    if ready is None:
        return ConnectionHealth(None, CONNECTING, f"Through Cluster {name!r}, which has no status yet")
    known = {"True": True, "False": False}.get(ready.status)
    return ConnectionHealth(known, ready.reason, f"Through Cluster {name!r}: {ready.message}")


# ---------------------------------------------------------------------------------------------------- wiring
def build(wiring: Wiring) -> runtime.Controller:
    """Wire the controller."""
    return SlurmClient(wiring).controller


class SlurmClient:
    """Keeps the connection of every Controller; `grace` is how long a failure must last to be said."""

    def __init__(self, wiring: Wiring, *, grace: float = GRACE) -> None:
        self._grace = grace
        self._secrets = wiring.secrets
        self._connections = wiring.connections
        self._node_events = wiring.node_events
        self._override = wiring.slurm_api_override
        self._reporter = ConditionReporter(
            wiring.client, wiring.events, Controller, wellknown.CONDITION_SLURM_API_READY, FIELD_MANAGER
        )
        self._controllers = wiring.manager.informer(Controller)
        self._restapis = wiring.manager.informer(RestApi)
        self._clusters = wiring.manager.informer(Cluster)
        self._nodesets = wiring.manager.informer(NodeSet)
        # External Controllers as they were last seen, while they exist and while NodeSets still need them.
        self._externals: dict[Key, Controller] = {}
        self._health: Channel[Key] = Channel()
        # By Controller, what its RestApi was at the last reconcile.
        self._serving: dict[Key, Serving] = {}
        moved = condition_changed(wellknown.CONDITION_SLURM_API_READY)
        self.controller = (
            runtime.Controller(NAME, self.reconcile, workers=wiring.workers["slurmclient"])
            .watch(self._controllers, predicate=any_of(ignore_status, moved))
            .watch(
                self._restapis, self._served, any_of(ignore_status, condition_rose(wellknown.CONDITION_READY))
            )
            .watch(self._clusters, self._users)
            .watch(self._nodesets, self._left_behind, ignore_status)
            .watch_channel(self._health, lambda key: (key,))
            .watch_channel(self._secrets.changes, enqueue_owners(NAME))
        )
        self._connections.subscribe(self._updated)

    def _users(self, change: Change[Cluster]) -> Iterable[Key]:
        """Map a Cluster to the Controllers that use it, or may from now on."""
        namespace, name = change.key
        yield Key(namespace, name)
        controllers = self._controllers.store.list(namespace)
        outlived = (one for key, one in self._externals.items() if key not in self._controllers.store)
        for controller in (*controllers, *outlived):
            if controller.metadata.namespace == namespace and cluster_ref(controller) == name:
                yield controller.key

    def _left_behind(self, change: Change[NodeSet]) -> Iterable[Key]:
        """Map a NodeSet to its Controller if that is gone and was kept in mind for it."""
        for version in (change.old, change.new):
            if version is not None:
                key = Key(version.metadata.namespace, version.spec.controller_ref.name)
                if key in self._externals and key not in self._controllers.store:
                    yield key

    def _served(self, change: Change[RestApi]) -> Iterable[Key]:
        """Map a RestApi to the Controllers that it served and serves; one that was never read, to all."""
        for key in restapi_controllers(change):
            if key.name:
                yield key
            else:
                yield from (found.key for found in self._controllers.store.list(key.namespace))

    def _updated(self, key: ConnectionKey, update: ViewUpdate) -> None:
        if key.kind != "Controller":
            return
        controller = Key(key.namespace, key.name)
        for change in update.changes:
            self._node_events.send(SlurmNodeEvent(controller, change.name, change.old, change.new))
        if not health_changed(update):
            return
        # Of a connection that is shared, the Cluster's status tells; only the name is the Controller's own.
        mismatched = any(isinstance(view.failure, WrongCluster) for view in (update.view, update.previous))
        if mismatched or self._connections.linked(key) is None:
            self._health.send(controller)

    # ---------------------------------------------------------------------------------------------- reconcile
    async def reconcile(self, key: Key) -> Requeue | None:
        """Give a Controller its connection and say how it is."""
        own = ConnectionKey("Controller", key.namespace, key.name)
        controller = self._controller(key)
        if controller is None:
            if key not in self._controllers.store.unreadable:
                self._connections.remove(own)
                self._secrets.want(Referrer(NAME, key), ())
                self._reporter.forget(key)
                self._serving.pop(key, None)
            return None
        choice = choose(
            controller,
            self._restapis.store.list(key.namespace),
            self._clusters.store.list(key.namespace),
            unread_restapis=_undecodable(self._restapis.store, key.namespace),
            unread_clusters=_undecodable(self._clusters.store, key.namespace),
        )
        match choice:
            case Cluster():
                self._secrets.want(Referrer(NAME, key), ())
                through = ConnectionKey("Cluster", *choice.key)
                shared = self._connections.link(
                    own, through, cluster=expected_cluster(controller), external=controller.spec.external
                )
                if shared is not None:
                    self._hasten(controller, self._oldest_restapi(controller), shared)
                return await self._say(controller, self._shared_health(choice, shared))
            case RestApi():
                return await self._connect(controller, choice, own)
            case ConnectionProblem():
                self._secrets.want(Referrer(NAME, key), ())
                self._connections.remove(own)
                return await self._say(controller, choice.health)
            case ConnectionHealth():
                return await self._say(controller, choice)

    def _controller(self, key: Key) -> Controller | None:
        """Return a Controller, also one that is gone while its Slurm goes on and NodeSets drain."""
        found = self._controllers.store.get(key)
        if found is not None:
            if found.spec.external:
                self._externals[key] = found
            else:
                self._externals.pop(key, None)
            return found
        if key in self._controllers.store.unreadable:
            return None
        kept = self._externals.get(key)
        if kept is not None and not needed(self._nodesets.store.list(key.namespace), key.name):
            del self._externals[key]
            return None
        return kept

    async def _say(self, controller: Controller, health: ConnectionHealth | RecheckAfter) -> Requeue | None:
        """Say how the connection of a Controller is, if there is still a Controller to say it of."""
        if controller.key not in self._controllers.store:
            return None
        return await self._reporter.say(controller, health)

    async def _connect(self, controller: Controller, restapi: RestApi, own: ConnectionKey) -> Requeue | None:
        try:
            secret = await self._secret(controller)
        except KubeError:
            # The current key is unknown, so the existing connection stays.
            await self._say(controller, unreadable("JwtSecretUnreadable"))
            raise
        chosen = target(controller, restapi, secret, self._override)
        if isinstance(chosen, ConnectionProblem):
            self._connections.remove(own)
            return await self._say(controller, chosen.health)
        connection = self._connections.set(
            own, chosen, cluster=expected_cluster(controller), external=controller.spec.external
        )
        self._hasten(controller, restapi, connection)
        now = asyncio.get_running_loop().time()
        health = assess(observe(connection), self._reporter.previous(controller), now, grace=self._grace)
        return await self._say(controller, health)

    def _hasten(self, controller: Controller, restapi: RestApi | None, connection: Connection) -> None:
        """Try a connection that fails at once if the RestApi has become ready since the last reconcile."""
        if restapi is None:
            self._serving.pop(controller.key, None)
            return
        before, serves = self._serving.get(controller.key), serving(restapi)
        self._serving[controller.key] = serves
        if came_back(before, serves):
            connection.retry()

    def _oldest_restapi(self, controller: Controller) -> RestApi | None:
        restapis = self._restapis.store.list(controller.metadata.namespace)
        mine = [one for one in restapis if one.spec.controller_ref.name == controller.metadata.name]
        return min(mine, key=_seniority, default=None)

    def _shared_health(self, cluster: Cluster, connection: Connection | None) -> ConnectionHealth:
        """Say how a connection is that a Controller shares with a Cluster."""
        failure = None if connection is None else connection.view.failure
        if connection is not None and isinstance(failure, WrongCluster):
            found = mismatch(failure, connection.target.url)
            return replace(found, message=f"Through Cluster {cluster.metadata.name!r}: {found.message}")
        return mirror(cluster)

    async def _secret(self, controller: Controller) -> Secret | None:
        selector = controller.jwt_key
        wanted = Key(controller.metadata.namespace, selector.name) if selector and selector.name else None
        self._secrets.want(Referrer(NAME, controller.key), () if wanted is None else (wanted,))
        return None if wanted is None else await self._secrets.get(wanted)


def _undecodable(store: Store[T], namespace: str) -> dict[str, str]:
    """Return what exists in a namespace and could never be read: the names, and why."""
    return {
        key.name: str(error)
        for key, error in store.unreadable.items()
        if key.namespace == namespace and key not in store
    }


def restapi_controllers(change: Change[RestApi]) -> Iterable[Key]:
    """Map a RestApi to the Controllers that it served and serves."""
    versions = [version for version in (change.old, change.new) if version is not None]
    return dict.fromkeys(
        Key(version.metadata.namespace, version.spec.controller_ref.name) for version in versions
    )
