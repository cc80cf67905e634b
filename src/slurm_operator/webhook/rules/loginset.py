"""LoginSet: a Controller, the users' directory, a Service, and pods that can be made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_operator.api import wellknown
from slurm_operator.objects import login
from slurm_operator.webhook.rules import pod_rules, reference_rules, service_rules, standins

if TYPE_CHECKING:
    from slurm_operator.api import LoginSet
    from slurm_operator.webhook.rules.findings import Findings
    from slurm_operator.webhook.rules.world import World

_OWN = {"login": "spec.login", "initconf": "spec.initconf"}


def check(loginset: LoginSet, _: World, findings: Findings) -> None:
    """Validate a LoginSet."""
    spec = loginset.spec
    reference_rules.check_controller_ref(spec.controller_ref, findings)
    reference_rules.check_secret(spec.sssd_conf_ref, "spec.sssdConfRef", "sssd.conf", findings)
    service_rules.check_child_name(loginset.service_name, "Service", findings)
    shapely = service_rules.check_service(spec.service, findings)
    own = {"spec.login": spec.login, "spec.initconf": spec.initconf}
    if not pod_rules.check_wishes(spec.template.spec, own, findings) or not shapely:
        return
    made = login.desired(
        loginset,
        standins.controller_of(loginset, spec.controller_ref.name),
        standins.found([spec.sssd_conf_ref]),
        cluster_domain=wellknown.DEFAULT_CLUSTER_DOMAIN,
        new_host_keys={},
    )
    findings.note(made.problems)
    if workload := made.find("Deployment", loginset.workload_name):
        pod_rules.check_pod(workload["spec"]["template"]["spec"], _OWN, spec.template.spec, findings)
