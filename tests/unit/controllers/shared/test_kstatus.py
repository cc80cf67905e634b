"""Conditions as GitOps tools read them."""

from __future__ import annotations

import pytest

from slurm_operator.api.schema import all_crds
from tests.support.gitops_states import Case, cases, kstatus, script


@pytest.mark.parametrize("case", [*cases()], ids=lambda case: case.name)
def test_kstatus_tells_progress_from_failure(case: Case) -> None:
    """Current means that the spec is reached, Failed that waiting does not help, InProgress all else."""
    assert kstatus(case.object) == case.kstatus


def test_a_new_object_is_not_complete() -> None:
    """The status of every kind has a default, by which kstatus sees that no operator has read it."""
    for crd in all_crds():
        (version,) = crd["spec"]["versions"]
        default = version["schema"]["openAPIV3Schema"]["properties"]["status"]["default"]
        assert default["observedGeneration"] == -1


def test_the_health_check_is_in_the_documentation() -> None:
    """The page has one script, which reads the conditions that objects have."""
    assert all(f'"{word}"' in script() for word in ("Ready", "Degraded", "Stalled"))
