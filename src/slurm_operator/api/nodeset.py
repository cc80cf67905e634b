"""NodeSet: worker pods of one shape, each of which is one node of a Slurm cluster."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

import msgspec

from slurm_operator.api import wellknown
from slurm_operator.api.autoscaling import Autoscaling  # noqa: TC001 - the decoder reads the annotations
from slurm_operator.api.limits import CLAIMS, MAX_DIGITS, MAX_REVISIONS, MAX_WORKERS, Line, Text
from slurm_operator.api.markers import (
    AGE,
    DEFAULTED,
    HEALTHY,
    NULLABLE,
    REASON,
    REQUIRED,
    Column,
    Definition,
    Immutable,
    Int32,
    Int64,
    KeyedList,
    maximum,
    minimum,
    one_of,
    pattern,
)
from slurm_operator.api.shared import (
    Condition,
    Container,
    Kind,
    LocalObjectReference,
    PodTemplate,
    SecretKeySelector,
    find_condition,
    selector,
)
from slurm_operator.api.updates import UpdateStrategy
from slurm_operator.kube.models.meta import Part, Resource

if TYPE_CHECKING:
    from collections.abc import Mapping


class ScalingMode(StrEnum):
    """What decides how many pods there are."""

    DAEMON_SET = "DaemonSet"
    STATEFUL_SET = "StatefulSet"


class ClaimRetention(StrEnum):
    """What happens to a volume claim when nothing needs it any more."""

    RETAIN = "Retain"
    DELETE = "Delete"


class PruneRecords(StrEnum):
    """When records of nodes that are gone are removed from Slurm."""

    NEVER = "Never"
    NODE_NOT_FOUND = "NodeNotFound"
    SCALED_IN = "ScaledIn"


class Ssh(Part, frozen=True):
    """Lets users log in to the workers on which their jobs run."""

    enabled: Annotated[bool, REQUIRED, DEFAULTED] = False
    """Whether an SSH server runs beside slurmd, on port 22 of each worker."""

    extra_sshd_config: Text = ""
    """Lines to append to `sshd_config`, for example `X11Forwarding yes`."""

    sssd_conf_ref: Annotated[SecretKeySelector, REQUIRED] = SecretKeySelector()
    """The Secret key with `sssd.conf`, which says where users and their groups come from. Users need the
    same numeric ids on login and worker pods."""


class Partition(Part, frozen=True):
    """A partition that consists of exactly the nodes of this NodeSet, and has its name.

    For a partition over several NodeSets, write a `PartitionName=` line into the Controller's extraConf
    instead.
    """

    enabled: Annotated[bool, REQUIRED, DEFAULTED] = False
    """Whether the partition exists."""

    config: Annotated[Line, pattern(r"^[^\n]+$")] = ""
    """Options of the partition, on one line, as `slurm.conf` has them: `Default=YES MaxTime=2-00:00:00`."""


class ClaimRetentionPolicy(Part, frozen=True):
    """Whether volumes made from volumeClaimTemplates outlive the workers they were made for."""

    when_deleted: Annotated[str, one_of(ClaimRetention), DEFAULTED] = ClaimRetention.RETAIN.value
    """What happens to all claims when the NodeSet is deleted: `Retain` keeps them for a NodeSet of the
    same name, `Delete` removes them with their data."""

    when_scaled: Annotated[str, one_of(ClaimRetention), DEFAULTED] = ClaimRetention.RETAIN.value
    """What happens to the claims of a worker that is scaled in: `Retain` keeps them for the worker that
    takes its number later, `Delete` removes them with their data."""


class NodeSetSpec(Part, frozen=True):
    """The wanted state of a group of workers."""

    controller_ref: Annotated[LocalObjectReference, REQUIRED, Immutable(in_schema=True)] = (
        LocalObjectReference()
    )
    """The Controller whose cluster the workers join."""

    replicas: Annotated[Int32, maximum(MAX_WORKERS), DEFAULTED] = 1
    """How many workers to run. Also set by `kubectl scale` and by autoscalers. Not used when scalingMode is
    `DaemonSet`."""

    autoscaling: Autoscaling | None = None
    """Lets Slurm decide which workers run. While it is set, `replicas` has no effect. Only for scalingMode
    `StatefulSet`."""

    scaling_mode: Annotated[str, one_of(ScalingMode), DEFAULTED] = ScalingMode.STATEFUL_SET.value
    """What decides how many workers there are.

    - StatefulSet runs `replicas` workers, numbered from 0, wherever Kubernetes finds room. For elastic
      pools.
    - DaemonSet runs one worker on every Kubernetes node that the pod template's nodeSelector, affinity and
      tolerations admit, and the Slurm node is named after it. For nodes that belong to Slurm.

    It can be changed: workers of the other mode are drained and then removed."""

    slurmd: Container = msgspec.field(default_factory=dict)
    """The slurmd container, in which jobs run; see `kubectl explain pod.spec.containers`. Set at least the
    image and the limits:

      image: ghcr.io/slinkyproject/slurmd:26.05-ubuntu26.04
      resources:
        limits:
          cpu: "64"
          memory: 512Gi
          nvidia.com/gpu: "8"

    Slurm learns the CPUs and the memory of the node from the limits. A worker without a memory request is
    evicted first when its node runs short. GPUs it does not: also name them in
    `extraConf` (`Gres=gpu:8`), and say in a `gres.conf` (the Controller's `configFileRefs`) how to find them.

    Arguments are added to the operator's own, among which is the name of the Slurm node (`-N`);
    everything else you set wins over what the operator would set."""

    ssh: Ssh = Ssh()

    logfile: Container = msgspec.field(default_factory=dict)
    """The container that prints slurmd's log file, for `kubectl logs -c logfile`. Any small image with a
    shell."""

    template: PodTemplate = PodTemplate()
    """What to add to the worker pods, or to change in them. Works as for any pod template here, with one
    exception: `spec.hostname` is a prefix, to which the number of the worker is appended (`gpu-` makes
    `gpu-0`, `gpu-1` …). It is also the name of the workers' feature and partition in Slurm; without it,
    that is the name of the NodeSet."""

    extra_conf: Line = ""
    """Options of the Slurm nodes, separated by spaces, as a `NodeName` line of `slurm.conf` has them:

      Features=a100,nvlink Gres=gpu:8 Weight=10
    """

    partition: Partition = Partition()

    volume_claim_templates: Annotated[tuple[dict[str, Any], ...] | None, NULLABLE, CLAIMS, Immutable()] = None
    """Volumes that each worker gets for itself and finds again after a restart; see
    `kubectl explain pvc`. A claim named `scratch` is mounted by the same name in slurmd's volumeMounts:

      - metadata:
          name: scratch
        spec:
          accessModes: [ReadWriteOnce]
          resources:
            requests:
              storage: 1Ti
    """

    update_strategy: UpdateStrategy = UpdateStrategy()

    revision_history_limit: Annotated[Int32, maximum(MAX_REVISIONS), DEFAULTED] = 0
    """How many revisions are kept that no worker runs any more, to compare with or to go back to."""

    persistent_volume_claim_retention_policy: ClaimRetentionPolicy = ClaimRetentionPolicy()

    min_ready_seconds: Int32 = 0
    """How long a worker must have been ready before it counts as available. Slows a rolling update down
    enough to notice that new workers fail."""

    ordinal_padding: Annotated[int, minimum(0), maximum(MAX_DIGITS), DEFAULTED] = 0
    """The number of digits of a worker's number: with 3, workers are called `<name>-000`, `<name>-001`
    …, which sort and fold well in Slurm's tools. A change renames, and so replaces, all workers. It renames
    their volume claims, too: the workers come back with empty volumes, and the data stay behind in the claims
    of the old names, as far as the retention policy keeps these."""

    pin_to_node: Annotated[bool, DEFAULTED] = False
    """Whether a worker that is replaced returns to the Kubernetes node it was on, as long as that still
    fits. For data or licences that are tied to a node. Used only when scalingMode is `StatefulSet`."""

    workload_disruption_protection: Annotated[bool, DEFAULTED] = True
    """Whether workers are protected against `kubectl drain` and cluster autoscalers, by a
    PodDisruptionBudget that allows no eviction: from their creation until the operator has drained the Slurm
    node and Slurm has confirmed that it is idle."""

    prune_slurm_node_records: Annotated[str, one_of(PruneRecords), DEFAULTED] = PruneRecords.NEVER.value
    """Whether Slurm forgets nodes that are gone for good. `Never` leaves them as down; `NodeNotFound`
    deletes a record once the Kubernetes node under it no longer exists, which only workers of scalingMode
    `DaemonSet` have; `ScaledIn` also deletes the records of numbered workers that were scaled in, once all
    wanted workers are there."""

    oversubscribe_node: Annotated[bool, DEFAULTED] = False
    """Whether several workers may share a Kubernetes node. By default each keeps others away, since a
    worker takes its node for its own."""


class NodeSetStatus(Part, frozen=True):
    """What the operator last saw of the workers, in Kubernetes and in Slurm."""

    replicas: Int32 = 0
    """How many pods exist, those that are terminating included."""

    updated_replicas: Int32 = 0
    """How many pods are of the newest revision and not terminating."""

    ready_replicas: Int32 = 0
    """How many pods run and pass their readiness check."""

    available_replicas: Int32 = 0
    """How many pods have been ready for at least `minReadySeconds`."""

    unavailable_replicas: Int32 = 0
    """How many of the wanted pods are missing or not available."""

    desired: Int32 = 0
    """How many pods there should be: `replicas`, or in DaemonSet mode the number of Kubernetes nodes
    that match, or with `autoscaling` the number of nodes that Slurm has powered up."""

    slurm_idle: Int32 = 0
    """How many of the Slurm nodes have nothing to do."""

    slurm_allocated: Int32 = 0
    """How many of the Slurm nodes run jobs, on all or on some of their resources."""

    slurm_down: Int32 = 0
    """How many of the Slurm nodes are down."""

    slurm_drain: Int32 = 0
    """How many of the Slurm nodes accept no new jobs because the operator or a person drained them."""

    observed_generation: Int64 = 0
    """The `metadata.generation` that this status describes."""

    node_set_hash: Annotated[str, REQUIRED] = ""
    """The newest revision, as the label `controller.kubernetes.io/hash` on its pods has it."""

    collision_count: Int32 | None = None
    """How often two different revisions had the same hash; part of the next hash."""

    conditions: Annotated[tuple[Condition, ...], KeyedList("type")] = ()
    """Observations, one of each type. `Ready` says whether all wanted workers are up to date and in
    service, and if not, what is being waited for; `ReservationCreated` whether the maintenance window is
    booked in Slurm."""

    ordinal_to_node: Annotated[dict[str, str] | None, NULLABLE] = None
    """The Kubernetes node of each worker, by its number. Kept only with `pinToNode`."""

    selector: Annotated[str, REQUIRED] = ""
    """The label selector of the pods, for autoscalers."""


_POWER_STATES: Final = f'.status.conditions[?(@.type=="{wellknown.CONDITION_AUTOSCALING}")].message'


class NodeSet(Kind, frozen=True):
    """Workers of one shape: each pod runs slurmd and is one node of a Slurm cluster.

    The operator keeps the right number of them running. When it scales in or updates, it drains a node in
    Slurm first, and never removes a pod while a job runs on it.
    """

    RESOURCE: ClassVar[Resource] = Resource(wellknown.GROUP, wellknown.VERSION, "nodesets", "NodeSet")
    CRD: ClassVar[Definition] = Definition(
        columns=(
            Column("DESIRED", ".status.desired", "integer", "Workers that there should be."),
            Column("REPLICAS", ".status.replicas", "integer", "Worker pods that exist."),
            Column("UPDATED", ".status.updatedReplicas", "integer", "Worker pods of the newest revision."),
            Column("READY", ".status.readyReplicas", "integer", "Worker pods that are ready."),
            HEALTHY,
            Column("IDLE", ".status.slurmIdle", "integer", "Slurm nodes with nothing to do.", 1),
            Column("ALLOCATED", ".status.slurmAllocated", "integer", "Slurm nodes that run jobs.", 1),
            Column("DOWN", ".status.slurmDown", "integer", "Slurm nodes that are down.", 1),
            Column("DRAIN", ".status.slurmDrain", "integer", "Slurm nodes that accept no new jobs.", 1),
            Column("POWER", _POWER_STATES, "string", "With autoscaling: Slurm nodes by power state.", 1),
            REASON,
            AGE,
        ),
        short_names=("nodesets", "nss", "slurmd"),
        scalable=True,
    )

    spec: NodeSetSpec = NodeSetSpec()
    status: NodeSetStatus = NodeSetStatus()

    @property
    def slurm_name(self) -> str:
        """Return the name in Slurm of the node set, of its feature and of its partition."""
        hostname = str(self.spec.template.spec.get("hostname") or "").split()
        return (hostname[0].strip("-") if hostname else "") or self.metadata.name

    @property
    def protects_workers(self) -> bool:
        """Return whether Kubernetes must not remove workers that may run jobs."""
        skips = self.metadata.annotations.get(wellknown.ANNOTATION_SKIP_DRAIN) == wellknown.TRUE
        return self.spec.workload_disruption_protection and not skips

    @property
    def selector(self) -> str:
        """Return the label selector of the pods, as `status.selector` has it."""
        return selector(self.metadata.name, wellknown.APP_SLURMD)

    @property
    def wanted_replicas(self) -> int:
        """Return how many numbered workers to run; objects older than the CRD's maximum may ask for more."""
        return min(max(0, self.spec.replicas), MAX_WORKERS)

    @property
    def autoscaled(self) -> bool:
        """Return whether Slurm decides which workers run."""
        return self.spec.autoscaling is not None and self.spec.scaling_mode == ScalingMode.STATEFUL_SET

    @property
    def most_replicas(self) -> int:
        """Return how many numbered workers there may be, running or powered down."""
        autoscaling = self.spec.autoscaling
        if autoscaling is None or not self.autoscaled:
            return self.wanted_replicas
        return min(max(0, autoscaling.max_replicas), MAX_WORKERS)

    @property
    def has_power_records(self) -> bool:
        """Return whether Slurm has, or gets, a record for each of `maxReplicas` workers."""
        said = find_condition(self.status.conditions, wellknown.CONDITION_AUTOSCALING)
        return self.autoscaled and not self.deleting and (said is None or said.status != "False")

    # --------------------------------------------------------------------------------------- names of pods
    @property
    def padding(self) -> int:
        """Return how many digits a worker's number has at least."""
        return min(self.spec.ordinal_padding, MAX_DIGITS)

    def padded(self, ordinal: int) -> str:
        """Return a worker's number with as many digits as the NodeSet asks for."""
        return str(ordinal).zfill(self.padding)

    def pod_name(self, ordinal: int) -> str:
        """Return the name of a numbered worker."""
        return f"{self.metadata.name}-{self.padded(ordinal)}"

    @property
    def pod_generate_name(self) -> str:
        """Return the prefix from which Kubernetes makes the names of DaemonSet-mode workers."""
        return f"{self.metadata.name}-"

    def pod_hostname(self, ordinal: int) -> str:
        """Return the hostname of a numbered worker: prefix and number, or the pod's name without a prefix."""
        prefix = str(self.spec.template.spec.get("hostname") or "")
        return f"{prefix}{self.padded(ordinal)}" if prefix else self.pod_name(ordinal)

    def claim_name(self, template: str, identity: str) -> str:
        """Return the name of a worker's claim; its identity is the padded number or the daemon's hostname."""
        return f"{template}-{self.metadata.name}-{identity}"

    # ----------------------------------------------------------------------------- names of other children
    @property
    def headless_service_name(self) -> str:
        """Return the name that older versions gave to a Service of each NodeSet."""
        return f"{self.metadata.name}-headless"

    @property
    def worker_service_name(self) -> str:
        """Return the name of the Service that all workers of the Slurm cluster share."""
        return worker_service_name(self.spec.controller_ref.name)

    def worker_service_fqdn(self, cluster_domain: str) -> str:
        """Return the full DNS name of the shared Service."""
        return worker_service_fqdn(self.spec.controller_ref.name, self.metadata.namespace, cluster_domain)

    @property
    def worker_pdb_name(self) -> str:
        """Return the name of the PodDisruptionBudget that all workers of the Slurm cluster share."""
        return f"slurm-workers-pdb-{self.spec.controller_ref.name}"

    @property
    def ssh_config_name(self) -> str:
        """Return the name of the ConfigMap with sshd_config."""
        return f"{self.metadata.name}-ssh-config"

    @property
    def reservation_name(self) -> str:
        """Return the name of the maintenance reservation in Slurm."""
        return f"{wellknown.RESERVATION_PREFIX}{self.metadata.name}"


def worker_service_name(controller: str) -> str:
    """Return the name of the Service over all workers of a Slurm cluster."""
    return f"slurm-workers-{controller}"


def worker_service_fqdn(controller: str, namespace: str, cluster_domain: str) -> str:
    """Return the full DNS name of that Service, which login and worker pods also search for short names."""
    return f"{worker_service_name(controller)}.{namespace}.svc.{cluster_domain}"


def daemon_hostname(node_name: str, node_annotations: Mapping[str, str]) -> str:
    """Return the hostname of a DaemonSet-mode worker on a Kubernetes node."""
    return node_annotations.get(wellknown.ANNOTATION_NODE_HOSTNAME_OVERRIDE) or node_name.partition(".")[0]


def slurm_node_name(
    *, scaling_mode: str, stated: bool, pod_name: str, hostname: str, host_network: bool, node_name: str
) -> str:
    """Return the name under which a worker pod registers in Slurm; the mode is the one on the pod's label.

    A pod whose slurmd is not told its name (`stated`) registers under its hostname. On the network of its
    node that is the node's, which is taken to be the name of the Node: what the pod asks for has no effect.
    """
    daemon = scaling_mode != ScalingMode.STATEFUL_SET
    if host_network and not (daemon and stated):
        return node_name
    return hostname if daemon else hostname or pod_name
