"""Accounting: slurmdbd, which keeps the history of jobs and the limits of users in a database."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from slurm_operator.api import wellknown
from slurm_operator.api.limits import Address, Name, Port, Text  # noqa: TC001 - msgspec resolves annotations at run time
from slurm_operator.api.markers import (
    AGE,
    DEFAULTED,
    IMMUTABLE_JWT_KEY,
    IMMUTABLE_SLURM_KEY,
    READY,
    REASON,
    REQUIRED,
    Definition,
    Int64,
    KeyedList,
)
from slurm_operator.api.shared import (
    IN_CLUSTER_RULES,
    Condition,
    ConfigMapKeySelector,
    Container,
    ExternalConfig,
    Kind,
    PodTemplate,
    SecretKeySelector,
    ServiceSpec,
    jwt_key,
)
from slurm_operator.kube.models.meta import Part, Resource


class StorageConfig(Part, frozen=True):
    """The MySQL or MariaDB database that slurmdbd writes to.

    For example:

      storageConfig:
        host: mariadb
        username: slurm
        passwordKeyRef:
          name: mariadb-password
          key: password
    """

    host: Annotated[Address, REQUIRED] = ""
    """The DNS name or address of the database server."""

    port: Annotated[Port, DEFAULTED] = wellknown.PORT_DATABASE
    """The port of the database server."""

    database: Annotated[Name, DEFAULTED] = "slurm_acct_db"
    """The name of the database. slurmdbd creates its tables in it."""

    username: Name = ""
    """The database user, which needs all privileges on that database."""

    password_key_ref: Annotated[SecretKeySelector, REQUIRED] = SecretKeySelector()
    """The Secret key with that user's password."""


class AccountingSpec(Part, frozen=True):
    """The wanted state of a slurmdbd."""

    MARKERS: ClassVar = IN_CLUSTER_RULES

    slurm_key_ref: Annotated[SecretKeySelector | None, IMMUTABLE_SLURM_KEY] = None
    """The Secret key that holds `slurm.key`, the same as in the Controllers that record their jobs here.
    Required unless `external` is true."""

    jwt_key_ref: Annotated[SecretKeySelector | None, IMMUTABLE_JWT_KEY] = None
    """The Secret key that signs JSON web tokens, the same as in the Controllers. Required unless
    `external` is true."""

    jwt_hs256_key_ref: Annotated[SecretKeySelector | None, IMMUTABLE_JWT_KEY] = None
    """The older name of `jwtKeyRef`; used only while that one is unset."""

    jwks_key_ref: ConfigMapKeySelector | None = None
    """The ConfigMap key that holds a JSON web key set, if tokens of an identity provider are to be
    accepted besides the cluster's own."""

    external: Annotated[bool, DEFAULTED] = False
    """Whether slurmdbd is run elsewhere. The operator then makes nothing for it and only tells
    the Controllers where it is."""

    external_config: ExternalConfig | None = None
    """Where the external slurmdbd listens. Required when `external` is true."""

    slurmdbd: Container = msgspec.field(default_factory=dict)
    """The slurmdbd container; see `kubectl explain pod.spec.containers`. Set at least the image:

      image: ghcr.io/slinkyproject/slurmdbd:26.05-ubuntu26.04
    """

    template: PodTemplate = PodTemplate()

    storage_config: StorageConfig = StorageConfig()

    extra_conf: Text = ""
    """Lines to append to `slurmdbd.conf`, where they win over the operator's own, for example how long job
    records are kept:

      PurgeJobAfter=24month
    """

    service: ServiceSpec = ServiceSpec()
    """How the Service in front of slurmdbd looks to its clients."""


class AccountingStatus(Part, frozen=True):
    """What the operator last saw of slurmdbd."""

    observed_generation: Int64 = 0
    """The `metadata.generation` that this status describes."""

    conditions: Annotated[tuple[Condition, ...], KeyedList("type")] = ()
    """Observations, one of each type. `Ready` says whether slurmdbd serves."""


class Accounting(Kind, frozen=True):
    """A slurmdbd: the memory of one or several Slurm clusters, with job history, accounts, limits and shares.

    Controllers use it by naming it in `accountingRef`.
    """

    RESOURCE: ClassVar[Resource] = Resource(wellknown.GROUP, wellknown.VERSION, "accountings", "Accounting")
    CRD: ClassVar[Definition] = Definition(columns=(READY, REASON, AGE), short_names=("slurmdbd",))

    spec: AccountingSpec = AccountingSpec()
    status: AccountingStatus = AccountingStatus()

    @property
    def jwt_key(self) -> SecretKeySelector | None:
        """Return the key that signs tokens, under either of its two spellings."""
        return jwt_key(self.spec.jwt_key_ref, self.spec.jwt_hs256_key_ref)

    @property
    def slurm_key_name(self) -> str:
        """Return the name of the Secret with slurm.key, empty if none is named."""
        return self.spec.slurm_key_ref.name if self.spec.slurm_key_ref else ""

    @property
    def workload_name(self) -> str:
        """Return the name of the StatefulSet."""
        return f"{self.metadata.name}-accounting"

    @property
    def service_name(self) -> str:
        """Return the name of the Service in front of slurmdbd."""
        return f"{self.metadata.name}-accounting"

    @property
    def config_name(self) -> str:
        """Return the name of the Secret with slurmdbd.conf, which contains the database password."""
        return f"{self.metadata.name}-accounting"

    @property
    def primary_name(self) -> str:
        """Return the name of the slurmdbd pod."""
        return f"{self.workload_name}-0"
