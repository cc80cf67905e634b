"""LoginSet: pods into which users log in to submit jobs."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from slurm_operator.api import wellknown
from slurm_operator.api.limits import MAX_PODS, IntOrWord, Text, Word
from slurm_operator.api.markers import (
    AGE,
    DEFAULTED,
    READY,
    REASON,
    REQUIRED,
    Column,
    Definition,
    Immutable,
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
    SecretKeySelector,
    ServiceSpec,
    selector,
)
from slurm_operator.kube.models.meta import Part, Resource


class RollingUpdateDeployment(Part, frozen=True):
    """How many login pods may be added or missing during an update."""

    max_surge: IntOrWord | None = None
    """How many pods may run in addition to `replicas` while old and new ones overlap: a number, or a
    percentage rounded up. Kubernetes uses 25% when unset."""

    max_unavailable: IntOrWord | None = None
    """How many pods may be missing meanwhile: a number, or a percentage rounded down. Kubernetes uses
    25% when unset."""


class DeploymentStrategy(Part, frozen=True):
    """How login pods are replaced after a change; passed on to their Deployment as it is.

    A replaced pod ends the sessions in it, whichever way is chosen. `RollingUpdate`, which Kubernetes uses
    when unset, starts a new pod before it stops an old one; `Recreate` stops all of them first, for volumes
    that only one pod can mount.
    """

    type: Word = ""
    """`RollingUpdate` or `Recreate`."""

    rolling_update: RollingUpdateDeployment | None = None


class LoginSetSpec(Part, frozen=True):
    """The wanted state of a group of login pods."""

    controller_ref: Annotated[LocalObjectReference, REQUIRED, Immutable(in_schema=True)] = (
        LocalObjectReference()
    )
    """The Controller whose cluster users submit jobs to from here."""

    replicas: Annotated[Int32, maximum(MAX_PODS), DEFAULTED] = 1
    """How many login pods to run. A user lands on any of them, so home folders belong on a shared
    volume. Also set by `kubectl scale`."""

    login: Container = msgspec.field(default_factory=dict)
    """The container with the SSH server and Slurm's commands; see `kubectl explain pod.spec.containers`.
    Set at least the image, and mount the home folders:

      image: ghcr.io/slinkyproject/login:26.05-ubuntu26.04
      volumeMounts:
      - name: home
        mountPath: /home

    A port named `login` replaces port 22."""

    initconf: Container = msgspec.field(default_factory=dict)
    """The container that puts Slurm's key in place, with the right owner, before login starts. Any small
    image with a shell."""

    template: PodTemplate = PodTemplate()

    root_ssh_authorized_keys: Text = ""
    """Public keys that may log in as root, one per line, as in an `authorized_keys` file. For
    administrators."""

    extra_sshd_config: Text = ""
    """Lines to append to `sshd_config`, for example `LoginGraceTime 600`."""

    sssd_conf_ref: Annotated[SecretKeySelector, REQUIRED] = SecretKeySelector()
    """The Secret key with `sssd.conf`, which says where users and their groups come from: LDAP, Active
    Directory and so on."""

    strategy: DeploymentStrategy = DeploymentStrategy()

    service: ServiceSpec = ServiceSpec()
    """How the Service in front of the SSH servers looks to users; usually of type LoadBalancer."""


class LoginSetStatus(Part, frozen=True):
    """What the operator last saw of the login pods."""

    replicas: Int32 = 0
    """How many login pods exist."""

    selector: Annotated[str, REQUIRED] = ""
    """The label selector of the pods, for autoscalers."""

    observed_generation: Int64 = 0
    """The `metadata.generation` that this status describes."""

    conditions: Annotated[tuple[Condition, ...], KeyedList("type")] = ()
    """Observations, one of each type. `Ready` says whether users can log in."""


class LoginSet(Kind, frozen=True):
    """Login pods: an SSH server with Slurm's commands, from which users submit and watch their jobs."""

    RESOURCE: ClassVar[Resource] = Resource(wellknown.GROUP, wellknown.VERSION, "loginsets", "LoginSet")
    CRD: ClassVar[Definition] = Definition(
        columns=(
            Column("REPLICAS", ".status.replicas", "integer", "Login pods that exist."),
            READY,
            REASON,
            AGE,
        ),
        short_names=("loginsets", "lss", "sackd"),
        scalable=True,
    )

    spec: LoginSetSpec = LoginSetSpec()
    status: LoginSetStatus = LoginSetStatus()

    @property
    def workload_name(self) -> str:
        """Return the name of the Deployment."""
        return self.metadata.name

    @property
    def service_name(self) -> str:
        """Return the name of the Service that users connect to."""
        return self.metadata.name

    @property
    def ssh_config_name(self) -> str:
        """Return the name of the ConfigMap with sshd_config and authorized_keys."""
        return f"{self.metadata.name}-ssh-config"

    @property
    def ssh_host_keys_name(self) -> str:
        """Return the name of the Secret with the host keys, which is made once and never changed."""
        return f"{self.metadata.name}-ssh-host-keys"

    @property
    def selector(self) -> str:
        """Return the label selector of the pods, as `status.selector` has it."""
        return selector(self.metadata.name, wellknown.APP_LOGIN)
