"""The recorded cases as inputs of pure functions: custom resources as structs, references by name."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from slurm_operator.api import KINDS, Accounting, Controller, Kind, LoginSet, NodeSet, RestApi, wellknown
from slurm_operator.kube.models.kinds import ConfigMap, Secret
from slurm_operator.objects import login, slurmctld, slurmdbd, slurmrestd
from slurm_operator.objects.content_references import Found
from slurm_operator.objects.slurm_conf import SlurmCluster
from tests.fixtures.golden import CASES, Case, Manifest

if TYPE_CHECKING:
    from slurm_operator.kube.models.meta import Object
    from slurm_operator.objects.desired import Desired

T = TypeVar("T", bound=Kind)

NAMESPACE = "NS"
# The recording replaced the name of the namespace; the letters inside of `PLUGINS` were there before.
NAMESPACE_IN_TEXT = re.compile(r"(?<![A-Z])NS(?![A-Z])")
HOST_KEYS = {
    f"ssh_host_{kind}_key{end}": b"<generated>"
    for kind in wellknown.SSH_HOST_KEY_TYPES
    for end in ("", ".pub")
}
DOMAIN = "cluster.local"
_KINDS: tuple[type[Object], ...] = (*KINDS, ConfigMap, Secret)
_MODELS = {kind.RESOURCE.kind: kind for kind in _KINDS}


def decode(manifest: Manifest, namespace: str = NAMESPACE) -> Object:
    """Return a manifest as the struct that the operator would read."""
    body = manifest | {"metadata": manifest["metadata"] | {"namespace": namespace, "uid": "uid"}}
    return msgspec.json.decode(msgspec.json.encode(body), type=_MODELS[manifest["kind"]])


@dataclass(frozen=True)
class World:
    """Everything a user applied in one case."""

    case: Case
    objects: tuple[Object, ...]

    def all(self, kind: type[T]) -> list[T]:
        return [item for item in self.objects if isinstance(item, kind)]

    @property
    def controller(self) -> Controller:
        (controller,) = self.all(Controller)
        return controller

    @property
    def cluster(self) -> SlurmCluster:
        accounting = self.all(Accounting)
        return SlurmCluster(self.controller, self.all(NodeSet), accounting[0] if accounting else None)

    @property
    def restapis(self) -> list[RestApi]:
        return self.all(RestApi)

    @property
    def loginsets(self) -> list[LoginSet]:
        return self.all(LoginSet)

    @property
    def accountings(self) -> list[Accounting]:
        return self.all(Accounting)

    @property
    def found(self) -> Found:
        return Found(
            {item.metadata.name: item for item in self.objects if isinstance(item, Secret)},
            {item.metadata.name: item for item in self.objects if isinstance(item, ConfigMap)},
        )

    def desired(self) -> list[Desired]:
        """Return all that is made from the custom resources, but for NodeSets."""
        return [
            slurmctld.desired(self.cluster, self.found, service_monitors=True),
            *(slurmdbd.desired(accounting, self.found) for accounting in self.accountings),
            *(slurmrestd.desired(restapi, self.cluster, self.found) for restapi in self.restapis),
            *(
                login.desired(
                    loginset, self.controller, self.found, cluster_domain=DOMAIN, new_host_keys=HOST_KEYS
                )
                for loginset in self.loginsets
            ),
        ]

    def workloads(self) -> list[Manifest]:
        """Return the StatefulSets and Deployments among these."""
        objects = [item for desired in self.desired() for item in desired.objects]
        return [item for item in objects if item["kind"] in ("StatefulSet", "Deployment")]

    def running(self, item: Manifest, namespace: str = NAMESPACE) -> Manifest:
        """Return the reference's workload as it would run here: some hashes are of names and of chance."""
        recorded = json.dumps(self.made(item["kind"], item["metadata"]["name"]))
        live: Manifest = json.loads(NAMESPACE_IN_TEXT.sub(namespace, recorded))
        annotations = live["spec"]["template"]["metadata"]["annotations"]
        for name in (wellknown.ANNOTATION_SLURM_CONFIG_HASH, wellknown.ANNOTATION_SSH_HOST_KEYS_HASH):
            if name in annotations:
                annotations[name] = item["spec"]["template"]["metadata"]["annotations"][name]
        return live

    def made(self, kind: str, name: str) -> Manifest:
        """Return one object that the reference made."""
        (item,) = (
            item for item in self.case.made if (item["kind"], item["metadata"]["name"]) == (kind, name)
        )
        return item

    def data(self, kind: str, name: str) -> dict[str, Any]:
        """Return the data of a ConfigMap or Secret that the reference made."""
        data: dict[str, Any] = self.made(kind, name)["data"]
        return data


def world(case: Case, namespace: str = NAMESPACE) -> World:
    """Return what the operator would see of a case in a namespace."""
    return World(case, tuple(decode(item, namespace) for item in case.inputs if item["kind"] in _MODELS))


WORLDS = {case.name: world(case) for case in CASES}
