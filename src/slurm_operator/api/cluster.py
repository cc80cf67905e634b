"""Cluster: the address of a slurmrestd that this operator did not deploy, and a token for it.

The kind is older than all others and stays at `v1alpha1`. A Controller uses a Cluster that has its own
name, or that its annotation `slinky.slurm.net/cluster-ref` names.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar

from slurm_operator.api import wellknown
from slurm_operator.api.limits import Address, Name  # noqa: TC001 - msgspec resolves annotations at run time
from slurm_operator.api.markers import AGE, HEALTHY, REASON, REQUIRED, Column, Definition, Int64, KeyedList
from slurm_operator.api.shared import Condition, Kind
from slurm_operator.kube.models.meta import Part, Resource


class ClusterToken(Part, frozen=True):
    """How the operator proves to slurmrestd who it is."""

    secret_ref: Annotated[Name, REQUIRED] = ""
    """The name of a Secret whose key `auth-token` holds a JSON web token of a Slurm administrator. For an
    `https` server whose certificate no public authority has signed, its key `ca.crt` holds the authority's
    certificate, in PEM."""


class ClusterSpec(Part, frozen=True):
    """Where slurmrestd is and how to log in."""

    server: Annotated[Address, REQUIRED] = ""
    """The URL of slurmrestd, such as `http://slurm-restapi.slurm:6820`. `https` as well; without a path."""

    token: Annotated[ClusterToken, REQUIRED] = ClusterToken()
    """The token to send with each request. A new token in the Secret is used at once."""


class ClusterStatus(Part, frozen=True):
    """What the operator last heard from slurmrestd."""

    is_ready: bool = False
    """Whether slurmctld answered the last ping through slurmrestd."""

    observed_generation: Int64 = 0
    """The `metadata.generation` that this status describes."""

    conditions: Annotated[tuple[Condition, ...], KeyedList("type")] = ()
    """Observations, one of each type. `Ready` says the same as `isReady`, and why: `Connected`, or what is
    in the way, such as `SecretNotFound`, `TokenRefused` or `SlurmctldDown`."""


class Cluster(Kind, frozen=True):
    """A Slurm cluster that runs elsewhere, reached through its own slurmrestd.

    A Controller with the same name, or with the annotation `slinky.slurm.net/cluster-ref` that names it, uses
    it in place of a RestApi. For example:

      apiVersion: slinky.slurm.net/v1alpha1
      kind: Cluster
      metadata:
        name: slurm
      spec:
        server: http://slurmrestd.example.com:6820
        token:
          secretRef: slurm-admin-token
    """

    RESOURCE: ClassVar[Resource] = Resource(wellknown.GROUP, wellknown.CLUSTER_VERSION, "clusters", "Cluster")
    CRD: ClassVar[Definition] = Definition(
        columns=(
            Column("READY", ".status.isReady", description="Whether slurmctld answered the last ping."),
            replace(HEALTHY, priority=1),
            REASON,
            AGE,
        ),
    )

    spec: ClusterSpec = ClusterSpec()
    status: ClusterStatus = ClusterStatus()

    @property
    def token_secret_name(self) -> str:
        """Return the name of the Secret with the token, under the key `wellknown.CLUSTER_AUTH_DATA_KEY`."""
        return self.spec.token.secret_ref
