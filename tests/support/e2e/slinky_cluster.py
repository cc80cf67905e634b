"""A cluster as Slinky slurm-operator left it, with pods that run: made of what was recorded of it.

The recording (tests/fixtures/golden) has all objects, but no node ever ran them. For real nodes they get
images that these hold, a database, the settings without which no job runs on a test machine, and something
that works in the place of what a recording cannot keep: the name of the namespace, host keys, the texts of
scripts. Whatever Slinky derives from a changed input is changed accordingly: slurm.conf, the volumes
of slurmctld, the hashes of templates and of the revision. Last comes what it writes on pods and on Slurm's
nodes while a job runs.
"""

from __future__ import annotations

import base64
import copy
import json
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from kubebox.images.slurm import slurm_image
from slurm_operator.api import wellknown
from slurm_operator.kube.manifests.revisions import go_json, hash_revision, revision_name
from slurm_operator.objects.content_references import data_checksum
from slurm_operator.objects.host_keys import make_host_keys
from tests.fixtures.golden import CASES

if TYPE_CHECKING:
    from tests.fixtures.golden import Manifest

NODESET, WORKER, LOGIN = "compute", "compute-0", "login"
_NAMESPACE = re.compile(r"(?<![A-Z])NS(?![A-Z])")
_SIDECAR = "example.org/alpine:26.05"
_IMAGE = re.compile(r"example\.org/([a-z]+):26\.05")
_CONFIG_FILES = {"cgroup.conf": "CgroupPlugin=disabled\n"}
_EXTRA = """\
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
PartitionName=all Nodes=ALL Default=YES MaxTime=UNLIMITED"""
# The end of a job without a limit: in Go, start.Add(math.MaxInt64).
_JOB_LIMIT = timedelta(seconds=(2**63 - 1) // 10**9)
# Other words than our operator's: those of Slinky slurm-operator were not recorded, and are not ours.
_SCRIPTS = {
    "logfile": 'mkfifo -m 666 "$SOCKET"; exec cat <>"$SOCKET"',
    "initconf": "cd /mnt/etc/slurm; cp -L /mnt/slurm/* .; chown 401:401 *; chmod 600 *",
}


def _case(name: str) -> tuple[list[Manifest], list[Manifest]]:
    (case,) = (case for case in CASES if case.name == name)
    return copy.deepcopy([*case.inputs]), copy.deepcopy([*case.made])


@dataclass
class Reference:
    """All objects of a cluster with accounting, REST, one worker and login pods, in one namespace."""

    namespace: str
    inputs: list[Manifest] = field(init=False)
    made: list[Manifest] = field(init=False)

    def __post_init__(self) -> None:
        inputs, made = _case("02-accounting")
        more_inputs, more_made = _case("03-login")
        inputs += [item for item in more_inputs if item["metadata"]["name"] in ("sssd", LOGIN)]
        made += [item for item in more_made if item["metadata"]["name"].partition("-")[0] == LOGIN]
        self.inputs, self.made = self._adapted(inputs), self._adapted(made)
        self._configure()
        self._give_host_keys()
        self._name_revision()

    def _adapted(self, items: list[Manifest]) -> list[Manifest]:
        text = _NAMESPACE.sub(self.namespace, json.dumps(items)).replace(_SIDECAR, slurm_image("tools"))
        found: list[Manifest] = json.loads(_IMAGE.sub(lambda match: slurm_image(match[1]), text))
        for item in found:
            for container in _pod_spec(item).get("initContainers", ()):
                container["command"][-1] = _SCRIPTS[container["name"]]
        return found

    def one(self, kind: str, name: str) -> Manifest:
        """Return one of the objects."""
        (found,) = (
            item
            for item in (*self.inputs, *self.made)
            if (item["kind"], item["metadata"]["name"]) == (kind, name)
        )
        return found

    def _configure(self) -> None:
        """Add what a test machine needs to the Controller, and to what is derived from it."""
        spec = self.one("Controller", "slurm")["spec"]
        spec["extraConf"], spec["configFileRefs"] = _EXTRA, [{"name": "extra"}]
        self.inputs.insert(
            0, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "extra"}, "data": _CONFIG_FILES}
        )
        config = self.one("ConfigMap", "slurm-config")["data"]
        config["slurm.conf"] += f"#\n### EXTRA CONFIG ###\n{_EXTRA}\n"
        for name in _CONFIG_FILES:
            del config[name]
        slurmctld = self.one("StatefulSet", "slurm-controller")["spec"]["template"]
        (volume,) = (volume for volume in slurmctld["spec"]["volumes"] if volume["name"] == "slurm-etc")
        volume["projected"]["sources"].append({"configMap": {"name": "extra"}})
        slurmctld["metadata"]["annotations"][wellknown.ANNOTATION_SLURM_CONFIG_HASH] = data_checksum(
            {name: text.encode() for name, text in config.items()}
        )

    def _give_host_keys(self) -> None:
        keys = make_host_keys()
        self.one("Secret", "login-ssh-host-keys")["data"] = {
            name: base64.b64encode(value).decode() for name, value in keys.items()
        }
        annotations = self.one("Deployment", LOGIN)["spec"]["template"]["metadata"]["annotations"]
        annotations[wellknown.ANNOTATION_SSH_HOST_KEYS_HASH] = data_checksum(keys)

    def _name_revision(self) -> None:
        """Name the revision of the workers by its content, which now has other images in it."""
        (revision,) = (item for item in self.made if item["kind"] == "ControllerRevision")
        self.revision_hash = hash_revision(go_json(revision["data"]), 0)
        revision["metadata"]["name"] = revision_name(NODESET, self.revision_hash)
        for item in (revision, self.one("Pod", WORKER)):
            item["metadata"]["labels"][wellknown.LABEL_REVISION_HASH] = self.revision_hash


def _pod_spec(item: Manifest) -> Manifest:
    spec = item.get("spec", {})
    found: Manifest = spec if item["kind"] == "Pod" else spec.get("template", {}).get("spec", {})
    return found


# ----------------------------------------------------------------------------------------------- the database


def database() -> list[Manifest]:
    """Return the database of the cluster, which is somebody else's: neither operator made it."""
    labels = {"app": "mariadb"}
    container = {
        "name": "mariadb",
        "image": slurm_image("mariadb"),
        "env": [
            {
                "name": "MARIADB_PASSWORD",
                "valueFrom": {"secretKeyRef": {"name": "db", "key": "password"}},
            }
        ],
        "readinessProbe": {"tcpSocket": {"port": 3306}, "periodSeconds": 2},
        "volumeMounts": [{"name": "data", "mountPath": "/var/lib/mysql"}],
    }
    pod = {
        "containers": [container],
        "securityContext": {"fsGroup": 999},
        "volumes": [{"name": "data", "emptyDir": {}}],
    }
    template = {"metadata": {"labels": labels}, "spec": pod}
    return [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "mariadb"},
            "spec": {"selector": {"matchLabels": labels}, "template": template},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "mariadb"},
            "spec": {"selector": labels, "ports": [{"port": 3306}]},
        },
    ]


# ------------------------------------------------------------------------------------- what it writes on pods


@dataclass(frozen=True)
class Marks:
    """What Slinky writes on a worker with a job: on its pod, in its status, on Slurm's node."""

    metadata: Manifest
    status: Manifest
    comment: str


def marks(pod: Manifest, nodeset_uid: str, job_start: str, *, full: bool) -> Marks:
    """Return the marks of a worker with a job on it, which has all of its processors or some."""
    info = {
        "namespace": pod["metadata"]["namespace"],
        "podName": pod["metadata"]["name"],
        "node": pod["spec"]["nodeName"],
        "nodeSetName": NODESET,
        "nodeSetUID": nodeset_uid,
    }
    end = datetime.fromisoformat(job_start).replace(tzinfo=UTC) + _JOB_LIMIT
    state = f"{wellknown.POD_CONDITION_PREFIX}{'Allocated' if full else 'Mixed'}"
    return Marks(
        {
            "metadata": {
                "labels": {wellknown.LABEL_POD_PROTECT: "true"},
                "annotations": {wellknown.ANNOTATION_POD_DEADLINE: f"{end:%Y-%m-%dT%H:%M:%SZ}"},
            }
        },
        {"status": {"conditions": [{"type": state, "status": "True"}]}},
        json.dumps(info, separators=(",", ":")),
    )


def statuses(reference: Reference) -> list[tuple[str, Manifest]]:
    """Return what Slinky writes into the status of custom resources; of most kinds it is nothing."""
    selector = "app.kubernetes.io/instance={0},app.kubernetes.io/name={1}".format
    workers = {
        **dict.fromkeys(("replicas", "readyReplicas", "availableReplicas", "updatedReplicas", "desired"), 1),
        "slurmAllocated": 1,
        "collisionCount": 0,
        "nodeSetHash": reference.revision_hash,
        "observedGeneration": 1,
        "selector": selector(NODESET, "slurmd"),
    }
    login = {"replicas": 2, "selector": selector(LOGIN, "login")}
    return [(f"nodeset/{NODESET}", {"status": workers}), (f"loginset/{LOGIN}", {"status": login})]
