"""The chart's rights against what the operator does with them, from the API server's own log."""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from typing import TYPE_CHECKING

import pytest

from kubebox import BoxError
from tests.support.charts.chart_accounts import NAMESPACE, USER, Right, granted, operator_kubeconfig, rights
from tests.support.charts.helm import SLURM, Helm, foreign_kinds, settle_kinds
from tests.support.processes import LOOPBACK_FLAGS, MANAGER, Process, eventually, install_crds
from tests.support.slurm.hostile_server import HostileSlurmrestd
from tests.support.status_client import status_client, token

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Any

    from kubebox import Box

VALUES = {
    "controller": {
        "clusterRef": "far",
        "persistence": {"storageClassName": "elastic"},
        "metrics": {"enabled": True, "serviceMonitor": {"enabled": True}},
    },
    "accounting": {"enabled": True},
    "mariadb": {"enabled": True, "size": ""},
    "loginsets": {"in": {"service": {"spec": {"type": "ClusterIP"}}}},
    "nodesets": {
        "a": {
            "replicas": 2,
            "revisionHistoryLimit": 1,
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Delete"},
            "oversubscribeNode": True,
            "ssh": {"enabled": True},
            "volumeClaimTemplates": [
                {
                    "metadata": {"name": "scratch"},
                    "spec": {
                        "storageClassName": "elastic",
                        "accessModes": ["ReadWriteOnce"],
                        "resources": {"requests": {"storage": "1Gi"}},
                    },
                }
            ],
        },
        # Owns with the first what all workers of a cluster share.
        "b": {"oversubscribeNode": True},
    },
    "tokens": {"portal": {"username": "portal", "secretRef": {"name": "portal", "key": "SLURM_JWT"}}},
    "clusters": {"far": {"tokenSecret": "far-token"}},
}


# Changes that make the operator take things away, and what goes with each.
CHANGES = (
    "nodesets.a.replicas=1",
    "nodesets.a.ssh.enabled=false",
    "nodesets.a.workloadDisruptionProtection=false",
    "controller.metrics.serviceMonitor.enabled=false",
    "controller.persistence.resources.requests.storage=8Gi",
    "tokens.portal.secretRef.name=entrance",
)
GONE = (
    "pod/slurm-worker-a-1",
    "persistentvolumeclaim/scratch-slurm-worker-a-1",
    "configmap/slurm-worker-a-ssh-config",
    "servicemonitors.monitoring.coreos.com/slurm-controller",
    "secret/portal",
)


MOVED = ("statefulset/slurm-accounting", "service/slurm-accounting", "secret/slurm-accounting")


# The second is dropped for the third and wanted again after it.
IMAGES = ("registry.invalid/slurmd:2", "registry.invalid/slurmd:3", "registry.invalid/slurmd:2")
# With it, only those may own an object who may change the finalizers of its owner, and only those may give it
# other owners who may delete it. That is found out within the API server, not by requests.
STRICT = "--enable-admission-plugins=OwnerReferencesPermissionEnforcement"
WATCHED = {right._replace(verb="get") for right in granted(rights()) if right.verb == "watch"}


# Rights whose use needs an accident, or is not in the log: all others must be used.
RARE: dict[str, Callable[[Right], bool]] = {
    "owners need it in this cluster, and only the API server itself asks": lambda right: (
        right.resource.endswith("/finalizers")
        or (right.verb, right.resource)
        in {("delete", "persistentvolumeclaims"), ("delete", "poddisruptionbudgets")}
    ),
    "an object that cannot be decoded is read again, and one whose write got no answer": lambda right: (
        right in WATCHED
    ),
    "an event that comes again is counted in the first one": lambda right: (
        (right.verb, right.resource) == ("patch", "events")
    ),
}


def requests(box: Box) -> Iterator[tuple[Right, int]]:
    """Yield what the operator asked for, and the answer's code, from the audit log."""
    for line in box.audit_log.read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        about = event.get("objectRef")
        if event["user"]["username"] != USER or about is None:
            continue
        resource = "/".join(filter(None, (about["resource"], about.get("subresource"))))
        right = Right(about.get("apiGroup", ""), resource, event["verb"])
        code = event.get("responseStatus", {}).get("code", 0)
        yield right, code
        # An apply that makes something needs the right to create it as well.
        if (right.verb, code) == ("patch", 201):
            yield right._replace(verb="create"), code


def start(folder: Path, kubeconfig: Path, *flags: str) -> Process:
    """Start the operator under an account."""
    lease = ("--leader-elect", f"--leader-elect-namespace={NAMESPACE}")
    arguments = [*MANAGER, *LOOPBACK_FLAGS, *lease, f"--kubeconfig={kubeconfig}", *flags]
    return Process(None, folder / "manager.log", arguments)


def prepare(box: Box, helm_program: Path, folder: Path) -> Helm:
    """Make a namespace with all that the values name."""
    install_crds(box)
    box.kubectl("apply", "--filename=-", stdin=foreign_kinds())
    settle_kinds(box)
    box.kubectl("create", "namespace", "slurm")
    elastic = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "elastic"},
        "provisioner": "example.com/none",
        "allowVolumeExpansion": True,
    }
    box.kubectl("apply", "--filename=-", stdin="\n---\n".join(map(json.dumps, (elastic, *volumes()))))
    helm = Helm(helm_program, box, "slurm", folder)
    helm.kubectl("create", "secret", "generic", "far-token", "--from-literal=auth-token=t")
    return helm


def volumes() -> Iterator[dict[str, Any]]:
    """Yield enough volumes for slurmctld and two workers; nothing makes them here."""
    for number in range(3):
        yield {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"volume-{number}"},
            "spec": {
                "storageClassName": "elastic",
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": "10Gi"},
                "hostPath": {"path": f"/volume-{number}"},
            },
        }


async def ready(helm: Helm) -> None:
    """Wait until every custom resource says that it is ready."""

    def unready() -> list[str]:
        what = ("get", "slurm", "--output=json")
        return [
            f"{item['kind']} {item['metadata']['name']}"
            for item in json.loads(helm.kubectl(*what))["items"]
            if not any(
                (one["type"], one["status"]) == ("Ready", "True")
                for one in item.get("status", {}).get("conditions", ())
            )
        ]

    await eventually(lambda: _in_thread(lambda: not unready()), "everything is ready", 120.0)


async def replaced(helm: Helm, image: str) -> None:
    """Wait until the worker runs an image."""

    def runs() -> bool:
        pod = helm.get("pod", "slurm-worker-a-0")
        return pod is not None and image in {one["image"] for one in pod["spec"]["containers"]}

    await eventually(lambda: _in_thread(runs), f"the worker runs {image}", 120.0)


def shared(helm: Helm) -> bool:
    """Return whether a budget has two owners; giving it the second takes a permission of its own."""
    budgets = json.loads(helm.kubectl("get", "poddisruptionbudgets", "--output=json"))["items"]
    return any(len(item["metadata"].get("ownerReferences", ())) == 2 for item in budgets)


async def _in_thread(question: Callable[[], bool]) -> bool:
    return await asyncio.to_thread(question)


async def vanished(helm: Helm, process: Process, objects: tuple[str, ...]) -> None:
    """Wait until some objects are gone."""

    def left() -> list[str]:
        return [name for name in objects if helm.get(*name.split("/")) is not None]

    try:
        await eventually(lambda: _in_thread(lambda: not left()), "", 120.0)
    except AssertionError:
        raise AssertionError(f"still there: {left()}; the operator said:\n{process.text()}") from None


@pytest.mark.timeout(600)
async def test_every_right_is_used_and_none_is_missing(
    kube_box_factory: Callable[..., Box], helm_program: Path, tmp_path: Path
) -> None:
    """In the life of a cluster nothing is forbidden, and no right is left over but those with a reason."""
    box = kube_box_factory(
        controller_manager=True, scheduler=True, fake_nodes=3, audit=True, apiserver_args=(STRICT,)
    )
    async with HostileSlurmrestd() as hostile:
        hostile.add_nodes("a-[0-1]", "IDLE", "DYNAMIC_NORM")
        hostile.add_nodes("b-0", "IDLE", "DYNAMIC_NORM")
        helm = await asyncio.to_thread(prepare, box, helm_program, tmp_path)
        far = f"clusters.far.server={hostile.url}"
        given = ("--values", tmp_path / "values.yaml", "--set", far)
        (tmp_path / "values.yaml").write_text(json.dumps(VALUES))
        kubeconfig = await asyncio.to_thread(operator_kubeconfig, box)
        with start(tmp_path, kubeconfig) as process:
            await eventually(process.ready, "ready")
            await asyncio.to_thread(helm.install, "slurm", SLURM, *given)
            await ready(helm)
            await eventually(lambda: _in_thread(lambda: shared(helm)), "both NodeSets own the budget", 120.0)
            # Who asks, and what they may see, is asked of the API server.
            bearer = await asyncio.to_thread(token, box, "slurm", "default")
            async with status_client(process, bearer) as status:
                assert (await status.ask("overview"))[0] == HTTPStatus.FORBIDDEN
            await asyncio.to_thread(helm.upgrade, "slurm", SLURM, *given, "--set", ",".join(CHANGES))
            await vanished(helm, process, GONE)
            for image in IMAGES:
                changes = ",".join((*CHANGES, f"nodesets.a.slurmd.image={image}"))
                await asyncio.to_thread(helm.upgrade, "slurm", SLURM, *given, "--set", changes)
                await replaced(helm, image)
            await ready(helm)
            # slurmdbd moves out: what ran it here is deleted by the operator.
            out = (*CHANGES, "accounting.external=true", "accounting.externalConfig.host=dbd.example.com")
            await asyncio.to_thread(helm.upgrade, "slurm", SLURM, *given, "--set", ",".join(out))
            await vanished(helm, process, MOVED)
    asked = [*requests(box)]
    role, used = granted(rights()), {right for right, _ in asked}
    assert sorted(str(right) for right, code in asked if code == HTTPStatus.FORBIDDEN) == []
    assert sorted(map(str, used - role)) == []
    unexplained = {right for right in role - used if not any(rare(right) for rare in RARE.values())}
    assert sorted(map(str, unexplained)) == []


@pytest.mark.timeout(600)
async def test_rights_in_some_namespaces_suffice(
    kube_box_factory: Callable[..., Box], helm_program: Path, tmp_path: Path
) -> None:
    """An operator for one namespace runs a cluster there with Roles, and may read no Secret elsewhere."""
    box = kube_box_factory(controller_manager=True, scheduler=True, fake_nodes=3, audit=True)
    helm = await asyncio.to_thread(prepare, box, helm_program, tmp_path)
    kubeconfig = await asyncio.to_thread(operator_kubeconfig, box, "--set", "operator.namespaces=slurm")
    with start(tmp_path, kubeconfig, "--namespaces=slurm") as process:
        await eventually(process.ready, "ready")
        simple = (
            "nodesets.a.oversubscribeNode=true,loginsets.in.replicas=1,controller.persistence.enabled=false"
        )
        await asyncio.to_thread(helm.install, "slurm", SLURM, "--set", simple)
        await ready(helm)
    assert sorted(str(right) for right, code in requests(box) if code == HTTPStatus.FORBIDDEN) == []
    may = ("auth", "can-i", "get", "secrets", f"--as={USER}")
    assert box.kubectl(*may, "--namespace=slurm").strip() == "yes"
    with pytest.raises(BoxError):
        box.kubectl(*may, "--namespace=default")
