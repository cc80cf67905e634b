from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_operator.api.clusterdomain import cluster_domain

POD = """\
search slurm.svc.example.net svc.example.net example.net corp.example.com
nameserver 10.96.0.10
options ndots:5
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (POD, "example.net"),
        ("search ns.svc.cluster.local svc.cluster.local cluster.local\n", "cluster.local"),
        ("search\tsvc.tabs.example   other", "tabs.example"),
        ("search svc.first.example svc.second.example", "first.example"),
        ("search corp.example.com\nsearch svc.second.example", "second.example"),
        ("search svc.rooted.example.", "rooted.example"),
        ("search svc. svc.. svc.real.example", "real.example"),
    ],
)
def test_the_domain_follows_svc(text: str, expected: str) -> None:
    """The first search entry below `svc.` gives the domain, however the line is laid out."""
    assert cluster_domain(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        "search",
        "nameserver 8.8.8.8",
        "search corp.example.com",
        "search a.svc.example.net",
        "# search svc.comment.example",
        ";search svc.comment.example",
        "searching svc.other.example",
        "domain svc.other.example",
    ],
)
def test_without_such_an_entry_it_is_the_usual_domain(text: str) -> None:
    """Outside a pod, or with another DNS policy, the domain is taken to be cluster.local."""
    assert cluster_domain(text) == "cluster.local"


@given(st.text())
def test_any_text_gives_a_domain(text: str) -> None:
    """No content of the file is an error, and what comes out is one word that does not end in a dot."""
    domain = cluster_domain(text)
    assert domain.split() == [domain]
    assert not domain.endswith(".")
