"""RestApi: a Controller to serve, a Service, and pods that can be made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_operator.objects import config, slurmrestd
from slurm_operator.webhook.rules import pods, references, services, standins

if TYPE_CHECKING:
    from slurm_operator.api import RestApi
    from slurm_operator.webhook.findings import Findings
    from slurm_operator.webhook.world import World

_OWN = {"slurmrestd": "spec.slurmrestd"}


def check(restapi: RestApi, _: World, findings: Findings) -> None:
    """Judge a RestApi."""
    spec = restapi.spec
    references.check_controller_ref(spec.controller_ref, findings)
    services.check_child_name(restapi.service_name, "Service", findings)
    services.check_not_negative("spec.replicas", spec.replicas, findings)
    shapely = services.check_service(spec.service, findings)
    if (
        not pods.check_wishes(spec.template.spec, {"spec.slurmrestd": spec.slurmrestd}, findings)
        or not shapely
    ):
        return
    cluster = config.Cluster(standins.controller_of(restapi, spec.controller_ref.name))
    made = slurmrestd.desired(restapi, cluster, standins.found())
    findings.note(made.problems)
    if workload := made.find("Deployment", restapi.workload_name):
        pods.check_pod(workload["spec"]["template"]["spec"], _OWN, spec.template.spec, findings)
