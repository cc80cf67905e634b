"""Accounting: keys, a database, lines for slurmdbd.conf, a Service, and a pod that can be made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from slurm_operator.objects import config, slurmdbd
from slurm_operator.objects.desired import Unbuildable
from slurm_operator.objects.references import jwt_field
from slurm_operator.slurm.confline import ConfError, port, word
from slurm_operator.webhook.rules import conf, pods, references, services, standins

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_operator.api import Accounting
    from slurm_operator.api.shared import ExternalConfig
    from slurm_operator.objects.references import Found
    from slurm_operator.webhook.findings import Findings
    from slurm_operator.webhook.world import World

_OWN = {"slurmdbd": "spec.slurmdbd"}
_POLICY: Final = conf.Policy(
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
    """Judge an Accounting."""
    spec = accounting.spec
    references.check_secret(spec.slurm_key_ref, "spec.slurmKeyRef", "slurm.key", findings)
    references.check_secret(accounting.jwt_key, jwt_field(spec), "the key that signs tokens", findings)
    references.check_config_map(spec.jwks_key_ref, "spec.jwksKeyRef", "the JSON web key set", findings)
    shapely = services.check_service(spec.service, findings)
    shapely &= pods.check_wishes(spec.template.spec, {"spec.slurmdbd": spec.slurmdbd}, findings)
    if spec.external:
        _check_address(spec.external_config, findings)
        return
    services.check_child_name(accounting.service_name, "Service", findings)
    storage = spec.storage_config
    references.check_secret(
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
        pods.check_pod(workload["spec"]["template"]["spec"], _OWN, spec.template.spec, findings)


def _check_extra(accounting: Accounting, found: Found, findings: Findings) -> None:
    plain = replace(accounting, spec=replace(accounting.spec, extra_conf=""))
    try:
        own = config.slurmdbd_conf(plain, found)
    except Unbuildable:
        return  # reported already; without a file there is nothing to compare with
    conf.check_extra(accounting.spec.extra_conf, own, _POLICY, findings)


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
