"""RestApi: a Controller to serve, a Service, and pods that can be made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_operator.objects import slurm_conf, slurmrestd
from slurm_operator.webhook.rules import pod_rules, reference_rules, service_rules, standins

if TYPE_CHECKING:
    from slurm_operator.api import RestApi
    from slurm_operator.webhook.rules.findings import Findings
    from slurm_operator.webhook.rules.world import World

_OWN = {"slurmrestd": "spec.slurmrestd"}


def check(restapi: RestApi, _: World, findings: Findings) -> None:
    """Validate a RestApi."""
    spec = restapi.spec
    reference_rules.check_controller_ref(spec.controller_ref, findings)
    service_rules.check_child_name(restapi.service_name, "Service", findings)
    service_rules.check_not_negative("spec.replicas", spec.replicas, findings)
    shapely = service_rules.check_service(spec.service, findings)
    if (
        not pod_rules.check_wishes(spec.template.spec, {"spec.slurmrestd": spec.slurmrestd}, findings)
        or not shapely
    ):
        return
    cluster = slurm_conf.SlurmCluster(standins.controller_of(restapi, spec.controller_ref.name))
    made = slurmrestd.desired(restapi, cluster, standins.found())
    findings.note(made.problems)
    if workload := made.find("Deployment", restapi.workload_name):
        pod_rules.check_pod(workload["spec"]["template"]["spec"], _OWN, spec.template.spec, findings)
