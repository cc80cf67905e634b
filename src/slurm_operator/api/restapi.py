"""RestApi: slurmrestd, the HTTP interface of a Slurm cluster, for users and for this operator itself."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from slurm_operator.api import wellknown
from slurm_operator.api.limits import MAX_PODS
from slurm_operator.api.markers import (
    AGE,
    DEFAULTED,
    READY,
    REASON,
    REQUIRED,
    Definition,
    Int32,
    Int64,
    KeyedList,
    maximum,
)
from slurm_operator.api.shared import (
    Condition,
    Container,
    Kind,
    LocalObjectReference,
    PodTemplate,
    ServiceSpec,
)
from slurm_operator.kube.models.meta import Part, Resource


class RestApiSpec(Part, frozen=True):
    """The wanted state of a slurmrestd."""

    controller_ref: Annotated[LocalObjectReference, REQUIRED] = LocalObjectReference()
    """The Controller whose cluster is served. A Controller needs a RestApi (or a Cluster): through it
    the operator learns which nodes run jobs, and without it no worker is removed."""

    replicas: Annotated[Int32, maximum(MAX_PODS), DEFAULTED] = 1
    """How many slurmrestd pods share the load."""

    slurmrestd: Container = msgspec.field(default_factory=dict)
    """The slurmrestd container; see `kubectl explain pod.spec.containers`. Set at least the image:

      image: ghcr.io/slinkyproject/slurmrestd:26.05-ubuntu26.04
    """

    template: PodTemplate = PodTemplate()

    service: ServiceSpec = ServiceSpec()
    """How the Service in front of slurmrestd looks to its clients. The traffic is plain HTTP with bearer
    tokens: put TLS in front before it leaves the cluster."""


class RestApiStatus(Part, frozen=True):
    """What the operator last saw of slurmrestd."""

    observed_generation: Int64 = 0
    """The `metadata.generation` that this status describes."""

    conditions: Annotated[tuple[Condition, ...], KeyedList("type")] = ()
    """Observations, one of each type. `Ready` says whether slurmrestd serves."""


class RestApi(Kind, frozen=True):
    """A slurmrestd: the HTTP interface of a Slurm cluster.

    Users' programs submit jobs through it; the operator itself uses it to drain nodes and to see which ones
    are busy.
    """

    RESOURCE: ClassVar[Resource] = Resource(wellknown.GROUP, wellknown.VERSION, "restapis", "RestApi")
    CRD: ClassVar[Definition] = Definition(columns=(READY, REASON, AGE), short_names=("slurmrestd",))

    spec: RestApiSpec = RestApiSpec()
    status: RestApiStatus = RestApiStatus()

    @property
    def workload_name(self) -> str:
        """Return the name of the Deployment."""
        return f"{self.metadata.name}-restapi"

    @property
    def service_name(self) -> str:
        """Return the name of the Service in front of slurmrestd."""
        return f"{self.metadata.name}-restapi"

    @property
    def service_address(self) -> str:
        """Return the short DNS name of the Service, valid anywhere in the Kubernetes cluster."""
        return f"{self.service_name}.{self.metadata.namespace}"

    @property
    def port(self) -> int:
        """Return the port of the Service."""
        return self.spec.service.port or wellknown.PORT_SLURMRESTD

    @property
    def server_url(self) -> str:
        """Return the URL under which this operator reaches slurmrestd."""
        return f"http://{self.service_address}:{self.port}"
