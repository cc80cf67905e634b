"""What a changed configuration led to."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from slurm_operator.api import wellknown
from slurm_operator.api.shared import Condition
from slurm_operator.controllers.workload.decide.effects import Effect, Inputs, effect
from slurm_operator.controllers.workload.decide.read_models import StatefulSetDetails
from slurm_operator.kube.models.kinds import ConfigMap, Secret
from slurm_operator.objects.content_references import Found

KEY, CONF = wellknown.ANNOTATION_SLURM_KEY_HASH, wellknown.ANNOTATION_SLURM_CONFIG_HASH


def inputs(gres: str = "a", key: bytes = b"k", conf: str = "c") -> Inputs:
    found = Found({"keys": Secret(data={"slurm.key": key})}, {"gres": ConfigMap(data={"gres.conf": gres})})
    rendered = {"kind": "ConfigMap", "metadata": {"name": "slurm-config"}, "data": {"slurm.conf": conf}}
    return Inputs(found, [rendered])


def live(**hashes: str) -> StatefulSetDetails:
    names = {"key": KEY, "conf": CONF}
    annotations = {names[name]: value for name, value in hashes.items()}
    body = {"spec": {"template": {"metadata": {"annotations": annotations | {"other": "x"}}}}}
    return msgspec.convert(body, StatefulSetDetails)


def wanted(**hashes: str) -> dict[str, Any]:
    names = {"key": KEY, "conf": CONF}
    annotations = {names[name]: value for name, value in hashes.items()}
    return {"spec": {"template": {"metadata": {"annotations": annotations | {"mine": "y"}}}}}


def decide(now: Inputs, **arguments: Any) -> tuple[str, str]:
    defaults: dict[str, Any] = {
        "sent": wanted(key="1"),
        "live": live(key="1"),
        "applied": False,
        "reconfigures": False,
        "changed": (),
        "previous": Condition(type="Configured", status="True", reason="Started", message="before"),
    }
    return effect("slurmctld", now, **defaults | arguments)


def test_first_start() -> None:
    """Where nothing ran before, the daemon starts with the configuration."""
    reason, message = decide(inputs(), live=None, previous=None)
    assert reason == Effect.STARTED
    assert message.endswith(f"configuration {inputs().digest}")


def test_daemon_that_reads_only_secrets() -> None:
    """Without files there is no digest, and what was said stays until the template changes."""
    bare = Inputs(Found({"keys": Secret(data={"slurm.key": b"k"})}), [])
    reason, message = decide(bare, live=None, previous=None)
    assert (reason, "configuration " in message) == (Effect.STARTED, False)
    assert decide(bare) == ("Started", "before")


def test_restart_names_what_changed() -> None:
    """Other hashes in the template are a restart; what changed is named, or else what the hash stands for."""
    new = inputs(key=b"new")
    reason, message = decide(
        new, sent=wanted(key="2"), applied=True, changed=new.changed(inputs()), reconfigures=True
    )
    assert reason == Effect.RESTART
    assert "in Secret 'keys';" in message
    assert (
        "in slurm.key and the configuration;" in decide(new, sent=wanted(key="2", conf="x"), applied=True)[1]
    )


def test_a_hash_that_goes_is_a_restart() -> None:
    """Files that are no longer referred to leave the template, and that replaces pods like any change."""
    without = Inputs(Found({"keys": Secret(data={"slurm.key": b"k"})}), [])
    changed = without.changed(inputs())
    reason, message = decide(without, live=live(key="1", conf="x"), applied=True, changed=changed)
    assert reason == Effect.RESTART
    assert "in ConfigMap 'gres' and slurm.conf" in message
    assert "in the configuration" in decide(without, live=live(key="1", conf="x"), applied=True)[1]


def test_other_hashes_that_were_not_applied_are_no_restart() -> None:
    """What the cache still shows of the workload after it was applied is not told as another restart."""
    now = inputs()
    previous = Condition(
        type="Configured", status="True", reason="Restart", message=f"x; configuration {now.digest}"
    )
    assert decide(now, sent=wanted(key="2"), previous=previous) == ("Restart", previous.message)


@pytest.mark.parametrize(("reconfigures", "reason"), [(True, Effect.RECONFIGURE), (False, Effect.NOTHING)])
def test_changed_files_without_a_restart(*, reconfigures: bool, reason: str) -> None:
    """Other files under the same template are told to the daemon, or concern no running pod."""
    new = inputs(gres="b", conf="d")
    found, message = decide(new, reconfigures=reconfigures, changed=new.changed(inputs()))
    assert found == reason
    assert "ConfigMap 'gres' and slurm.conf" in message


def test_changed_files_after_a_restart_of_the_operator() -> None:
    """Without a memory the digest in the message still tells that files changed, if not which."""
    reason, message = decide(inputs(gres="b"), reconfigures=True)
    assert (reason, "its files;" in message) == (Effect.RECONFIGURE, True)


def test_found_running() -> None:
    """A workload that another operator created says nothing about what happened."""
    assert decide(inputs(), previous=None)[0] == Effect.STARTED


def test_secrets_are_not_in_the_digest() -> None:
    """No user can test guesses of a key against a status; a changed key is seen all the same."""
    assert inputs(key=b"one").digest == inputs(key=b"two").digest
    assert inputs(key=b"one").changed(inputs(key=b"two")) == ["Secret 'keys'"]
    assert inputs(gres="x").digest != inputs().digest
    assert inputs().changed(None) == []
