"""Controller: one Slurm cluster, its slurmctld or the address of one that runs elsewhere."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from slurm_operator.api import wellknown
from slurm_operator.api.limits import ENTRIES, REFERENCES, Address, Name, Text, Word
from slurm_operator.api.markers import (
    AGE,
    DEFAULTED,
    IMMUTABLE_JWT_KEY,
    IMMUTABLE_SLURM_KEY,
    NULLABLE,
    READY,
    REASON,
    REQUIRED,
    Definition,
    Immutable,
    Int32,
    Int64,
    KeyedList,
    Rule,
    maximum,
    minimum,
    pattern,
)
from slurm_operator.api.persistence import Persistence
from slurm_operator.api.shared import (
    IN_CLUSTER_RULES,
    Condition,
    ConfigMapKeySelector,
    Container,
    ExternalConfig,
    Kind,
    LocalObjectReference,
    Metadata,
    PodTemplate,
    SecretKeySelector,
    ServiceSpec,
    jwt_key,
)
from slurm_operator.kube.models.meta import Part, Resource

# What Prometheus reads as a duration: 30s, 1m30s, 1d.
PrometheusDuration = Annotated[
    Word,
    pattern(r"^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$"),
]

ConfigMaps = Annotated[tuple[LocalObjectReference, ...] | None, NULLABLE, REFERENCES]


class HighAvailability(Part, frozen=True):
    """Runs standby slurmctlds beside the active one.

    When the active slurmctld dies, a standby takes over with the state it reads from the shared volume;
    running jobs go on. All of them mount the same claim, so `persistence.existingClaim` must name one with
    the access mode ReadWriteMany:

      ha:
        enabled: true
        backups: 1
      persistence:
        existingClaim: slurm-state
    """

    enabled: Annotated[bool, REQUIRED, DEFAULTED] = False
    """Whether standbys run."""

    backups: Annotated[Int32, minimum(1), maximum(9), DEFAULTED] = 1
    """How many standbys run in addition to the active slurmctld. One is enough for most clusters."""


class MetricsEndpoint(Part, frozen=True):
    """One path of slurmctld that Prometheus scrapes."""

    path: Annotated[Address, REQUIRED] = ""
    """The HTTP path, such as `/metrics/jobs`."""

    interval: PrometheusDuration = ""
    """How often to scrape this path; the monitor's interval when unset."""

    scrape_timeout: PrometheusDuration = ""
    """How long one scrape of this path may take; the monitor's timeout when unset."""


class ServiceMonitor(Metadata, frozen=True):
    """Asks the Prometheus operator to scrape slurmctld. Does nothing where its CRDs are not installed."""

    enabled: Annotated[bool, DEFAULTED] = False
    """Whether a ServiceMonitor is made. It needs `metrics.enabled` as well."""

    interval: PrometheusDuration = ""
    """How often to scrape, as Prometheus writes durations (`30s`); Prometheus' own setting when unset."""

    scrape_timeout: PrometheusDuration = ""
    """How long one scrape may take (`25s`); must not exceed the interval."""

    endpoints: Annotated[tuple[MetricsEndpoint, ...] | None, NULLABLE, ENTRIES] = None
    """The paths to scrape. Left out: `/metrics/jobs`, `/metrics/nodes`, `/metrics/partitions` and
    `/metrics/scheduler`."""


class Metrics(Part, frozen=True):
    """Slurm's own metrics: jobs, nodes, partitions and scheduler, in the format of Prometheus."""

    enabled: Annotated[bool, DEFAULTED] = False
    """Whether slurmctld serves metrics, under `/metrics` on its own port 6817, to anyone who can reach it."""

    service_monitor: Annotated[ServiceMonitor | None, NULLABLE] = None


class ControllerSpec(Part, frozen=True):
    """The wanted state of one Slurm cluster."""

    MARKERS: ClassVar = (
        *IN_CLUSTER_RULES,
        Rule(
            "!has(self.ha) || !self.ha.enabled || (has(self.persistence) && self.persistence.enabled"
            " && has(self.persistence.existingClaim) && size(self.persistence.existingClaim) > 0)",
            "ha.enabled needs persistence.existingClaim: all slurmctlds share one volume, so name a "
            "PersistentVolumeClaim with the access mode ReadWriteMany and leave persistence.enabled true",
            field="persistence",
        ),
    )

    cluster_name: Annotated[Name, Immutable("cluster_name")] = ""
    """The name of the cluster inside Slurm (`ClusterName`), as `sacctmgr` and job records show it. At most 40
    characters. `<namespace>_<name of this object>` when unset."""

    slurm_key_ref: Annotated[SecretKeySelector | None, IMMUTABLE_SLURM_KEY] = None
    """The Secret key that holds `slurm.key`, with which all daemons of the cluster prove who they are to
    each other. One whose name ends in `.jwks` holds several of them, as Slurm's `slurm.jwks`: so keys can be
    changed while jobs run. Required unless `external` is true. Name it then, too: the workers, login pods and
    slurmrestd that run here join the external cluster with that cluster's own key."""

    jwt_key_ref: Annotated[SecretKeySelector | None, IMMUTABLE_JWT_KEY] = None
    """The Secret key that signs JSON web tokens, with which users and this operator talk to slurmrestd.
    Required unless `external` is true. Name it then, too, with the key of the external cluster: the operator
    signs its own tokens with it, unless a Cluster object supplies one."""

    jwt_hs256_key_ref: Annotated[SecretKeySelector | None, IMMUTABLE_JWT_KEY] = None
    """The older name of `jwtKeyRef`; used only while that one is unset."""

    jwks_key_ref: ConfigMapKeySelector | None = None
    """The ConfigMap key that holds a JSON web key set, if tokens of an identity provider are to be
    accepted besides the cluster's own."""

    accounting_ref: LocalObjectReference | None = None
    """The Accounting in which jobs are recorded. Without it, or while no object of that name exists,
    Slurm keeps no history and enforces no limits."""

    external: Annotated[bool, DEFAULTED] = False
    """Whether slurmctld is run elsewhere, say on a machine outside Kubernetes. The operator then
    only connects workers, login pods and slurmrestd to it; it makes no pod and no volume for it. These
    pods still need the keys of that cluster, in `slurmKeyRef` and `jwtKeyRef`."""

    external_config: ExternalConfig | None = None
    """Where the external slurmctld listens. Required when `external` is true."""

    ha: HighAvailability = HighAvailability()

    slurmctld: Container = msgspec.field(default_factory=dict)
    """The slurmctld container; see `kubectl explain pod.spec.containers`. Set at least the image:

      image: ghcr.io/slinkyproject/slurmctld:26.05-ubuntu26.04

    Arguments are added to the operator's own; everything else you set wins over what the operator would
    set."""

    inplace_reconfigure: Annotated[bool, DEFAULTED] = False
    """How slurmctld learns of a changed configuration. False: its pod is restarted, which is simple and
    certain, and takes seconds in which no job starts. True: a sidecar runs `scontrol reconfigure`;
    nothing stops, but a few options only take effect at the next restart."""

    reconfigure: Container = msgspec.field(default_factory=dict)
    """The container that watches the configuration when `inplaceReconfigure` is true. Give it an image
    with `scontrol` in it, usually the one of slurmctld."""

    logfile: Container = msgspec.field(default_factory=dict)
    """The container that prints slurmctld's log file, for `kubectl logs -c logfile`. Any small image
    with a shell."""

    template: PodTemplate = PodTemplate()

    extra_conf: Text = ""
    """Lines to append to `slurm.conf`, where they win over the operator's own:

      SchedulerType=sched/backfill
      PriorityType=priority/multifactor

    Options that the cluster cannot work without, such as `enable_configless`, are kept whatever is
    written here."""

    config_file_refs: ConfigMaps = None
    """ConfigMaps whose keys become files beside `slurm.conf`: `gres.conf`, `topology.yaml`,
    `job_submit.lua` and so on. `slurm.conf` and `slurmdbd.conf` themselves are made by the operator and
    refused here."""

    prolog_script_refs: ConfigMaps = None
    """ConfigMaps of scripts that each worker runs before a job's first step there. Scripts run in the
    order of their file names; one that fails drains the node."""

    epilog_script_refs: ConfigMaps = None
    """ConfigMaps of scripts that each worker runs after a job. One that fails drains the node."""

    prolog_slurmctld_script_refs: ConfigMaps = None
    """ConfigMaps of scripts that slurmctld runs before it starts a job."""

    epilog_slurmctld_script_refs: ConfigMaps = None
    """ConfigMaps of scripts that slurmctld runs after a job has ended."""

    persistence: Persistence = Persistence()

    service: ServiceSpec = ServiceSpec()
    """How the Service in front of slurmctld looks to clients, for example to reach it from outside the
    cluster."""

    metrics: Metrics = Metrics()


class ControllerStatus(Part, frozen=True):
    """What the operator last saw of the cluster."""

    observed_generation: Int64 = 0
    """The `metadata.generation` that this status describes."""

    conditions: Annotated[tuple[Condition, ...], KeyedList("type")] = ()
    """Observations, one of each type. `Ready` says whether slurmctld answers; `SlurmApiReady` whether the
    operator reaches it through slurmrestd, without which no worker is removed."""


class Controller(Kind, frozen=True):
    """A Slurm cluster: its slurmctld, its configuration, and the keys that its daemons share.

    NodeSets, LoginSets and RestApis join it by naming it in `controllerRef`.
    """

    RESOURCE: ClassVar[Resource] = Resource(wellknown.GROUP, wellknown.VERSION, "controllers", "Controller")
    CRD: ClassVar[Definition] = Definition(columns=(READY, REASON, AGE), short_names=("slurmctld",))

    spec: ControllerSpec = ControllerSpec()
    status: ControllerStatus = ControllerStatus()

    @property
    def cluster_name(self) -> str:
        """Return the name of the cluster inside Slurm."""
        return self.spec.cluster_name or f"{self.metadata.namespace}_{self.metadata.name}"

    @property
    def replicas(self) -> int:
        """Return how many slurmctlds there are, standbys included."""
        if self.spec.external or not self.spec.ha.enabled:
            return 1
        return 1 + self.spec.ha.backups

    @property
    def jwt_key(self) -> SecretKeySelector | None:
        """Return the key that signs tokens, under either of its two spellings."""
        return jwt_key(self.spec.jwt_key_ref, self.spec.jwt_hs256_key_ref)

    @property
    def slurm_key_name(self) -> str:
        """Return the name of the Secret with slurm.key, empty if none is named."""
        return self.spec.slurm_key_ref.name if self.spec.slurm_key_ref else ""

    @property
    def persistence_enabled(self) -> bool:
        """Return whether slurmctld's state survives its pod."""
        return self.spec.persistence.enabled

    @property
    def claim_in_use(self) -> str:
        """Return the name of the user's claim that holds the state, empty if there is none."""
        return self.spec.persistence.existing_claim if self.spec.persistence.enabled else ""

    # ------------------------------------------------------------------------------ names of child objects
    @property
    def workload_name(self) -> str:
        """Return the name of the StatefulSet and of the ServiceMonitor."""
        return f"{self.metadata.name}-controller"

    @property
    def config_name(self) -> str:
        """Return the name of the ConfigMap with slurm.conf."""
        return f"{self.metadata.name}-config"

    @property
    def service_name(self) -> str:
        """Return the name of the Service that leads to the active slurmctld."""
        return f"{self.metadata.name}-controller"

    @property
    def internal_service_name(self) -> str:
        """Return the name of the headless Service that gives every slurmctld pod a DNS name."""
        return f"{self.metadata.name}-controller-internal"

    def pod_name(self, ordinal: int) -> str:
        """Return the name of one slurmctld pod, or the host of the external one."""
        if self.spec.external:
            return self.spec.external_config.host if self.spec.external_config else ""
        return f"{self.workload_name}-{ordinal}"

    @property
    def primary_name(self) -> str:
        """Return the name of the slurmctld that is active when nothing has failed."""
        return self.pod_name(0)

    def claim_name(self, ordinal: int) -> str:
        """Return the name of the claim that the StatefulSet makes for one pod's state."""
        return f"{wellknown.VOLUME_STATESAVE}-{self.workload_name}-{ordinal}"

    # ------------------------------------------------------------------------------------------- addresses
    @property
    def service_address(self) -> str:
        """Return the short DNS name of the Service, valid anywhere in the Kubernetes cluster."""
        return f"{self.service_name}.{self.metadata.namespace}"

    def service_fqdn(self, cluster_domain: str) -> str:
        """Return the full DNS name of the Service."""
        return f"{self.service_address}.svc.{cluster_domain}"

    @property
    def internal_service_address(self) -> str:
        """Return the short DNS name of the headless Service."""
        return f"{self.internal_service_name}.{self.metadata.namespace}"

    def pod_address(self, ordinal: int) -> str:
        """Return the short DNS name of one slurmctld pod."""
        return f"{self.pod_name(ordinal)}.{self.internal_service_address}"

    def host_address(self, ordinal: int) -> str:
        """Return the short DNS name of the Service of one slurmctld, which is called like its pod."""
        return f"{self.pod_name(ordinal)}.{self.metadata.namespace}"

    @property
    def primary_address(self) -> str:
        """Return the short DNS name of the primary slurmctld pod."""
        return self.pod_address(0)
