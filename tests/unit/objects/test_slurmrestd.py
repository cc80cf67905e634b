"""What is made from a RestApi, beyond its equality with the reference (integration/objects)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slurm_operator.api.reasons import Reason
from slurm_operator.objects import slurmrestd
from slurm_operator.objects.content_references import Found
from slurm_operator.objects.slurm_conf import SlurmCluster
from tests.support.objects.resources import accounting, controller, found, node_set, restapi

if TYPE_CHECKING:
    from slurm_operator.objects.desired import Manifest

CLUSTER = SlurmCluster(controller())
ADDRESS = "0.0.0.0:6820"


def _deployment(cluster: SlurmCluster = CLUSTER, content: Found | None = None, **spec: Any) -> Manifest:
    made = slurmrestd.desired(restapi(**spec), cluster, content or found()).find(
        "Deployment", "slurm-restapi"
    )
    assert made is not None
    return made


def _args(cluster: SlurmCluster = CLUSTER, **spec: Any) -> list[str]:
    (container,) = _deployment(cluster, **spec)["spec"]["template"]["spec"]["containers"]
    args: list[str] = container["args"]
    return args


def _annotations(cluster: SlurmCluster, content: Found | None = None) -> dict[str, str]:
    annotations: dict[str, str] = _deployment(cluster, content)["spec"]["template"]["metadata"]["annotations"]
    return annotations


def test_the_address_is_the_last_argument() -> None:
    """Arguments of the user stand before the address, from whichever field they come."""
    assert _args() == ["-s", "openapi/slurmctld", ADDRESS]
    assert _args(slurmrestd={"args": ["-vv"]}) == ["-s", "openapi/slurmctld", "-vv", ADDRESS]
    named = {"spec": {"containers": [{"name": "slurmrestd", "args": ["-x"]}]}}
    assert _args(slurmrestd={"args": ["-vv"]}, template=named)[-3:] == ["-vv", "-x", ADDRESS]


def test_with_accounting_all_plugins_are_loaded() -> None:
    """Only without accounting is slurmrestd kept from asking for slurmdbd."""
    owner = controller(accountingRef={"name": "acct"})
    assert _args(SlurmCluster(owner, accounting=accounting())) == [ADDRESS]


def test_difference_1_what_concerns_slurmrestd_replaces_it() -> None:
    """Another key, another port or other accounting replaces slurmrestd; another NodeSet does not."""
    before = _annotations(CLUSTER)
    assert _annotations(CLUSTER, found({"auth-slurm": {"slurm.key": b"new"}})) != before
    assert _annotations(SlurmCluster(controller(service={"port": 7000}))) != before
    assert _annotations(SlurmCluster(controller(), accounting=accounting())) != before
    assert _annotations(SlurmCluster(controller(), [node_set("a", partition={"enabled": True})])) == before
    assert _annotations(SlurmCluster(controller(prologScriptRefs=[{"name": "gone"}]))) == before


def test_an_external_cluster_without_key() -> None:
    """slurmrestd of an external cluster whose key is not known here lives by tokens alone."""
    external = controller(external=True, externalConfig={"host": "h", "port": 1}, slurmKeyRef=None)
    desired = slurmrestd.desired(restapi(), SlurmCluster(external), Found())
    assert desired.problems == ()
    made = desired.find("Deployment", "slurm-restapi")
    assert made is not None
    (volume,) = made["spec"]["template"]["spec"]["volumes"]
    assert [list(source) for source in volume["projected"]["sources"]] == [["configMap"]]
    assert slurmrestd.references(external).secrets == frozenset()


def test_difference_10_without_controller_there_is_only_a_service() -> None:
    """A missing Controller is named, and the Service is made all the same."""
    desired = slurmrestd.desired(restapi(), None, Found())
    assert [item["kind"] for item in desired.objects] == ["Service"]
    (problem,) = desired.problems
    assert (problem.reason, problem.field) == (Reason.MISSING_REFERENCE, "spec.controllerRef")
    assert problem.message.startswith("Controller 'slurm' ")


def test_difference_4_the_port_of_the_service() -> None:
    """The Service offers its own port and leads to the port on which slurmrestd listens."""
    (service, _) = slurmrestd.desired(restapi(service={"port": 8080}), CLUSTER, found()).objects
    (port,) = service["spec"]["ports"]
    assert (port["port"], port["targetPort"]) == (8080, "slurmrestd")
    assert restapi(service={"port": 8080}).server_url == "http://slurm-restapi.NS:8080"


def test_difference_3_annotations_do_not_reach_pods() -> None:
    """Annotations of the RestApi change no pod."""
    annotated = restapi({"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}})
    made = slurmrestd.desired(annotated, CLUSTER, found()).find("Deployment", "slurm-restapi")
    assert made is not None
    assert made["spec"] == _deployment()["spec"]


def test_a_missing_accounting_holds_slurmrestd() -> None:
    """While the Accounting of the Controller does not exist, slurmrestd is not restarted for its absence."""
    cluster = SlurmCluster(controller(accountingRef={"name": "acct"}))
    desired = slurmrestd.desired(restapi(), cluster, found({"auth-slurm": None}))
    assert [item["kind"] for item in desired.objects] == ["Service"]
    fields = [problem.field for problem in desired.problems]
    assert fields == ["spec.accountingRef of the Controller", "spec.slurmKeyRef of the Controller"]
