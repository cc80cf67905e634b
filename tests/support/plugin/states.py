"""States of a cluster as the manager's API reports them, for what the command prints about each."""

from __future__ import annotations

from tests.support.plugin.outage_states import slurmrestd_down, wrong_token
from tests.support.plugin.pod_states import missing_image, name_conflict, unschedulable
from tests.support.plugin.sample_state import State
from tests.support.plugin.upkeep_states import (
    after_migration,
    autoscaled,
    drain_by_a_person,
    maintenance,
    scaling_in,
)

STATES = {
    "healthy": State(),
    "scaling-in-with-jobs": scaling_in(),
    "slurmrestd-down": slurmrestd_down(),
    "wrong-token": wrong_token(),
    "name-conflict": name_conflict(),
    "unschedulable-pod": unschedulable(),
    "missing-image": missing_image(),
    "drain-by-a-person": drain_by_a_person(),
    "maintenance-window": maintenance(),
    "after-migration": after_migration(),
    "autoscaled": autoscaled(),
}
