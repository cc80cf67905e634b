"""Labels, annotations and owners of child objects: what they inherit and from whom.

Later sources win: the custom resource's own labels and annotations, then what its spec adds for this object,
then the operator's labels, which selectors depend on. `kubectl.kubernetes.io/last-applied-configuration` is
never inherited: on a child it would mean that a user applied a Controller under the child's name.

Children also say that they are of this operator (`recommended`), where the user has set nothing else. That is
a label of objects and of new workers only. Pod templates stay without it: a label more restarts daemons.

Pod templates inherit labels but no annotations of the custom resource (`pod_parts.template_metadata`): tools
rewrite annotations at will, and a template that changes restarts daemons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from slurm_operator.api import wellknown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_operator.api import Kind
    from slurm_operator.api.shared import Metadata

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_HELM = "Helm"


class App(NamedTuple):
    """A daemon as labels name it: the program, and its part in the cluster."""

    name: str
    component: str


SLURMCTLD = App(wellknown.APP_SLURMCTLD, wellknown.COMPONENT_CONTROLLER)
SLURMDBD = App(wellknown.APP_SLURMDBD, wellknown.COMPONENT_ACCOUNTING)
SLURMRESTD = App(wellknown.APP_SLURMRESTD, wellknown.COMPONENT_RESTAPI)
LOGIN = App(wellknown.APP_LOGIN, wellknown.COMPONENT_LOGIN)


def selector_labels(app: App, instance: str) -> dict[str, str]:
    """Return the labels that choose the pods of one workload."""
    return {wellknown.LABEL_APP_INSTANCE: instance, wellknown.LABEL_APP_NAME: app.name}


def app_labels(app: App, instance: str) -> dict[str, str]:
    """Return the operator's labels on everything that belongs to a daemon."""
    return {wellknown.LABEL_APP_COMPONENT: app.component, **selector_labels(app, instance)}


def object_metadata(
    owner: Kind, app: App, name: str, *added: Metadata, inherit: bool = True
) -> dict[str, Any]:
    """Return the metadata of a child object."""
    sources = ((owner.metadata,) if inherit else ()) + added
    annotations = merge_maps(*(source.annotations for source in sources))
    annotations.pop(LAST_APPLIED, None)
    return {
        "name": name,
        "namespace": owner.metadata.namespace,
        "labels": recommended(
            merge_maps(*(source.labels for source in sources), app_labels(app, owner.metadata.name))
        ),
        **({"annotations": annotations} if annotations else {}),
        "ownerReferences": [owner_reference(owner)],
    }


def recommended(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of a child with those that name its manager and its application, where it has none.

    A chart labels the custom resource with `managed-by: Helm`; that is not true of its children.
    """
    managers = {wellknown.LABEL_APP_MANAGED_BY: wellknown.OPERATOR}
    helm = labels.get(wellknown.LABEL_APP_MANAGED_BY) == _HELM
    return {
        **managers,
        wellknown.LABEL_APP_PART_OF: wellknown.APPLICATION,
        **labels,
        **(managers if helm else {}),
    }


def owner_reference(owner: Kind) -> dict[str, Any]:
    """Return the reference by which a child is found, and deleted with its owner."""
    return {
        "apiVersion": owner.RESOURCE.api_version,
        "kind": owner.RESOURCE.kind,
        "name": owner.metadata.name,
        "uid": owner.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def merge_maps(*maps: dict[str, str] | None) -> dict[str, str]:
    """Return all entries; of two with the same key, the later one."""
    return {key: value for part in maps for key, value in (part or {}).items()}
