"""What an answer about the states of jobs says about those that were asked about."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slurm_operator.slurm.errors import BadReply, SlurmError
from tests.support.slurm.hostile_replies import Fault, job

if TYPE_CHECKING:
    from slurm_operator.slurm.rest.client import RestClient
    from tests.support.slurm.hostile_replies import Json
    from tests.support.slurm.hostile_server import HostileSlurmrestd


def state(number: str, *words: str) -> Json:
    return job(0, "") | {"job_id": number, "job_state": [*words]}


def say(hostile: HostileSlurmrestd, *entries: Json) -> None:
    for index, entry in enumerate(entries):
        hostile.jobs[index] = entry


async def test_a_number_that_comes_twice_has_ended_if_both_say_so(
    hostile: HostileSlurmrestd, client: RestClient
) -> None:
    """And may hold nodes if one of them does; what was not asked about is left out."""
    say(
        hostile,
        *(
            state("1", "COMPLETED"),
            state("1_0", "RUNNING"),
            state("2_0", "FAILED"),
            state("2_1", "CANCELLED"),
        ),
        *(state("3", "COMPLETED"), state("3", "PENDING"), state("4", "COMPLETED"), state("12", "COMPLETED")),
    )
    found = await client.job_states([1, 2, 3, 5])
    assert found.unfinished == {1}
    assert found.ended == {2}
    assert found.cluster == hostile.cluster


@pytest.mark.parametrize("number", ["", "x", "1x", "_1"])
async def test_a_number_that_cannot_be_read_spoils_the_answer(
    hostile: HostileSlurmrestd, client: RestClient, number: str
) -> None:
    """It may be that of a job that was asked about."""
    say(hostile, state("1", "COMPLETED"), state(number, "RUNNING"))
    with pytest.raises(BadReply, match="has no number"):
        await client.job_states([1])


@pytest.mark.parametrize(
    "fault",
    [
        *(Fault.ERRORS, Fault.ABSENT_LIST, Fault.NULL_LIST, Fault.MALFORMED_ENTRY, Fault.TRUNCATED),
        *(Fault.RESET, Fault.SHORT_BODY, Fault.CUT_CHUNKED, Fault.INTERNAL_ERROR),
    ],
    ids=lambda fault: fault.name,
)
async def test_a_damaged_answer_says_nothing(
    hostile: HostileSlurmrestd, client: RestClient, fault: Fault
) -> None:
    """No job of it has ended, also if some entries can be read."""
    say(hostile, *(state(str(number), "COMPLETED") for number in range(1, 50)))
    assert len((await client.job_states([*range(1, 50)])).ended) == 49
    hostile.fail(fault, on="jobs/state")
    with pytest.raises(SlurmError):
        await client.job_states([*range(1, 50)])


@pytest.mark.parametrize("fault", [Fault.HALF, Fault.EMPTY], ids=lambda fault: fault.name)
async def test_of_half_a_list_only_what_is_there_has_ended(
    hostile: HostileSlurmrestd, client: RestClient, fault: Fault
) -> None:
    """What is left out is not said to have ended."""
    say(hostile, *(state(str(number), "COMPLETED") for number in range(1, 51)))
    hostile.fail(fault, on="jobs/state")
    found = await client.job_states([*range(1, 51)])
    assert len(found.ended) == (25 if fault is Fault.HALF else 0)
    assert not found.unfinished
