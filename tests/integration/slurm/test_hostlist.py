"""Hostlists against Slurm's own: scontrol of both releases reads ours, and we read theirs."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from slurm_operator.slurm.model.hostlist import expand, fold

if TYPE_CHECKING:
    from kubebox.slurm import SlurmBox

# Padding, mixed widths, several numbers, none, dashes at the end, neighbours, gaps, and the longest number.
NAMES = sorted(
    {
        *(f"n{number}" for number in (*range(1, 13), 99, 100, 101, 1000)),
        *(f"n{number:02d}" for number in range(13)),
        *(f"n{number:03d}" for number in (7, 8, 9, 10, 99, 100)),
        *(f"r{rack}n{node}-ib{port}" for rack in range(3) for node in (1, 2, 5) for port in (0, 1)),
        *(f"ip-10-0-{net}-{host}" for net in (0, 1) for host in range(250, 256)),
        *("login", "login-", "x--", "x--1", "a.b.c", "a1b", "a2b", "7", "8", "n18446744073709551615"),
        *(f"n{10**17 + number}" for number in range(3)),
    }
)
ACCEPTED = [
    *(
        "n[001-010,12]",
        "n[1-3]-[2-3]",
        "a,b,a",
        "n[08-11]",
        "n[8-011]",
        "n[099-101]",
        "n[1-2]x",
        "n--",
        "a-[1-2]-",
    ),
    *(
        ",,a",
        "n[01,1,001]",
        "n[1-3,2]",
        "[1-3]",
        "x[1-2][3-4]y",
        " a b ",
        "n[18446744073709551615]",
        "n[09-100]",
    ),
]
REFUSED = [
    "n[5-1]",
    "n[1",
    "n[]",
    "n[1,,2]",
    "n[a-b]",
    "n[-3]",
    "n[1x]",
    "n[1-2-3]",
    "a[1-2],b[",
    "n[0-65536]",
]


@pytest.fixture(params=["slurm_box", "slurm_box_24"])
def box(request: pytest.FixtureRequest) -> SlurmBox:
    """Hand out a cluster of each release."""
    found: SlurmBox = request.getfixturevalue(request.param)
    return found


def by_slurm(box: SlurmBox, hostlist: str) -> list[str]:
    """Let scontrol expand a hostlist."""
    return box.run("scontrol", "show", "hostnames", hostlist).stdout.split()


def test_slurm_reads_our_lists(box: SlurmBox) -> None:
    """What we fold, Slurm expands to the same names: all of them, and any part of them."""
    chooser = random.Random(1)  # noqa: S311 - any choice will do, the same every time
    for size in (len(NAMES), 60, 30, 10, 3):
        names = chooser.sample(NAMES, size)
        assert sorted(by_slurm(box, fold(names))) == sorted(names)


def test_we_read_slurms_lists(box: SlurmBox) -> None:
    """What Slurm folds we expand to the same names."""
    # Not `hostlistsorted`: with several widths under one prefix, both releases lose names when they sort.
    folded = box.run("scontrol", "show", "hostlist", ",".join(NAMES)).stdout.strip()
    assert sorted(expand(folded)) == NAMES


@pytest.mark.parametrize("hostlist", ACCEPTED)
def test_we_expand_as_slurm_does(box: SlurmBox, hostlist: str) -> None:
    """The same names in the same order."""
    assert expand(hostlist) == by_slurm(box, hostlist)


@pytest.mark.parametrize("hostlist", REFUSED)
def test_we_refuse_what_slurm_refuses(box: SlurmBox, hostlist: str) -> None:
    """A list that Slurm cannot read is an error here as well."""
    result = box.run(
        "scontrol", "show", "hostnames", hostlist, check=False
    )  # its exit status is 0 all the same
    assert "Invalid hostlist" in result.stdout + result.stderr
    with pytest.raises(ValueError, match="hostlist"):
        expand(hostlist)
