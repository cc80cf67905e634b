"""Accounting: keys, a database, lines for slurmdbd.conf, a Service, and a pod that can be made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from slurm_operator.objects import slurm_conf, slurmdbd
from slurm_operator.objects.content_references import jwt_field
from slurm_operator.objects.desired import Unbuildable
from slurm_operator.slurm.conf.conf_lines import ConfError, port, word
from slurm_operator.webhook.rules import conf_rules, pod_rules, reference_rules, service_rules, standins

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_operator.api import Accounting
    from slurm_operator.api.shared import ExternalConfig
    from slurm_operator.objects.content_references import Found
    from slurm_operator.webhook.rules.findings import Findings
    from slurm_operator.webhook.rules.world import World

_OWN = {"slurmdbd": "spec.slurmdbd"}
_POLICY: Final = conf_rules.Policy(
    free=frozenset({"authaltparameters", "authinfo", "logfile"}),
    instead={
        "storagehost": "spec.storageConfig.host",
        "storageport": "spec.storageConfig.port",
        "storageuser": "spec.storageConfig.username",
        "storageloc": "spec.storageConfig.database",
        "storagepass": "spec.storageConfig.passwordKeyRef",
    },
)


def check(accounting: Accounting, _: World, findings: Findings) -> None:
    """Validate an Accounting."""
    spec = accounting.spec
    reference_rules.check_secret(spec.slurm_key_ref, "spec.slurmKeyRef", "slurm.key", findings)
    reference_rules.check_secret(accounting.jwt_key, jwt_field(spec), "the key that signs tokens", findings)
    reference_rules.check_config_map(spec.jwks_key_ref, "spec.jwksKeyRef", "the JSON web key set", findings)
    shapely = service_rules.check_service(spec.service, findings)
    shapely &= pod_rules.check_wishes(spec.template.spec, {"spec.slurmdbd": spec.slurmdbd}, findings)
    if spec.external:
        _check_address(spec.external_config, findings)
        return
    service_rules.check_child_name(accounting.service_name, "Service", findings)
    storage = spec.storage_config
    reference_rules.check_secret(
        storage.password_key_ref,
        "spec.storageConfig.passwordKeyRef",
        "the password of the database",
        findings,
    )
    if not shapely:
        return
    found = standins.found(
        [spec.slurm_key_ref, accounting.jwt_key, storage.password_key_ref], keys=[spec.jwks_key_ref]
    )
    made = slurmdbd.desired(accounting, found)
    findings.note(made.problems)
    _check_extra(accounting, found, findings)
    if workload := made.find("StatefulSet", accounting.workload_name):
        pod_rules.check_pod(workload["spec"]["template"]["spec"], _OWN, spec.template.spec, findings)


def _check_extra(accounting: Accounting, found: Found, findings: Findings) -> None:
    plain = replace(accounting, spec=replace(accounting.spec, extra_conf=""))
    try:
        own = slurm_conf.slurmdbd_conf(plain, found)
    except Unbuildable:
        return  # reported already; without a file there is nothing to compare with
    conf_rules.check_extra(accounting.spec.extra_conf, own, _POLICY, findings)


def _check_address(address: ExternalConfig | None, findings: Findings) -> None:
    """Refuse an address that could not stand in slurm.conf, which is all that becomes of it."""
    if address is None:
        return
    checks: tuple[tuple[str, Callable[[], str]], ...] = (
        ("spec.externalConfig.host", lambda: word("AccountingStorageHost", address.host)),
        ("spec.externalConfig.port", lambda: port("AccountingStoragePort", address.port)),
    )
    for path, write in checks:
        try:
            write()
        except ConfError as error:
            findings.deny(path, error.problem)
