from __future__ import annotations

import pytest

from slurm_operator.slurm.model.slurm_address import (
    check_hostlist,
    check_name,
    check_node_conf,
    check_reservation_name,
)
from slurm_operator.slurm.rest.client import parse_url


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://slurm-restapi.slurm:6820", "http://slurm-restapi.slurm:6820"),
        ("HTTP://Slurm:6820/", "http://slurm:6820"),
        ("https://rest.example.com", "https://rest.example.com"),
        ("http://10.0.0.1:80", "http://10.0.0.1:80"),
        ("http://[fd00::1]:6820/", "http://[fd00::1]:6820"),
        ("http://slurm_restapi:6820", "http://slurm_restapi:6820"),
        ("http://slurm.example.:6820", "http://slurm.example.:6820"),
        (f"http://{'a' * 63}.b:6820", f"http://{'a' * 63}.b:6820"),
    ],
)
def test_a_good_url_is_brought_into_its_plain_form(text: str, url: str) -> None:
    """Scheme, host and port are all that a slurmrestd needs."""
    assert parse_url(text) == url
    assert parse_url(url) == url


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty"),
        ("slurm:6820", "https://"),
        ("http://", "no valid host"),
        ("http://:6820", "no valid host"),
        ("ftp://slurm:6820", "scheme 'ftp'"),
        ("http://slurm:6820/slurm/v0.0.42", "a path"),
        ("http://slurm:6820?x=1", "a query"),
        ("http://slurm:6820#x", "a fragment"),
        ("http://slurm:99999", "host and port"),
        ("http://slurm:0", "no valid port"),
        ("http://slurm:", "no valid port"),
        ("http://slurm:port", "host and port"),
        ("http://sl urm:6820", "spaces"),
        ("http://slurm:6820\n", "spaces or control"),
        ("http://slurm\x00:6820", "control"),
        ("http://[fd00::1:6820", "host and port"),
        ("http://slürm:6820", "no valid host"),
        ("http://a,b:6820", "no valid host"),
        ("http://a..b:6820", "no valid host"),
        ("http://.a:6820", "no valid host"),
        (f"http://{'a' * 64}:6820", "no valid host"),
        (f"http://{'a.' * 127}b:6820", "no valid host"),
        ("http://[fe80::1%25eth0]:6820", "no valid host"),
        ("http://[::1::2]:6820", "no valid host"),
    ],
)
def test_a_bad_url_is_refused_with_the_reason(text: str, problem: str) -> None:
    """A URL that cannot be meant is refused, and the message says what is wrong and how to write it."""
    with pytest.raises(ValueError, match=problem) as caught:
        parse_url(text)
    assert "http://slurm-restapi.slurm:6820" in str(caught.value)


def test_a_password_in_a_url_is_not_repeated() -> None:
    """A refusal never quotes what may be a password."""
    with pytest.raises(ValueError, match="user or password") as caught:
        parse_url("ftp://admin:hunter2@slurm:6820/path")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("name", ["n1", "compute-0", "gpu_a.example", "N1", "9"])
def test_names_of_nodes(name: str) -> None:
    """Letters, digits, dots, dashes and underscores name a node."""
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "n[1-9]", "n1,n2", "../ping", "n 1", "ALL", "all", "-n1", ".", "n1\n", "n%31", "ñ1"]
)
def test_what_is_not_the_name_of_one_node(name: str) -> None:
    """Nothing that could mean several nodes, or another URL, passes for the name of one."""
    with pytest.raises(ValueError, match="not the name of a node"):
        check_name(name)


@pytest.mark.parametrize("text", ["n1", "n[1-3]", "n[001-010,12],gpu-1", "r[1-2]n[1-2]"])
def test_hostlists(text: str) -> None:
    """A hostlist passes as it is."""
    assert check_hostlist(text) == text


@pytest.mark.parametrize(
    "text",
    ["", ",", "n[1-", "n[3-1]", "n[]", "n[a]", "n[1,]", "n[1]]", "ALL", "n1,all", "n[1-99999999]", "a/b"],
)
def test_hostlists_that_would_do_harm(text: str) -> None:
    """What crashes slurmrestd 24.11, means all nodes, or names none is never sent."""
    with pytest.raises(ValueError, match=r"hostlist|not the name of a node"):
        check_hostlist(text)


@pytest.mark.parametrize("name", ["upkeep", "a/b ?", "root_1", "...", "Wartung für alle"])
def test_names_of_reservations(name: str) -> None:
    """A reservation may be named as people like."""
    assert check_reservation_name(name) == name


@pytest.mark.parametrize("name", ["", ".", "..", "a\nb", "a\x00"])
def test_what_is_not_the_name_of_a_reservation(name: str) -> None:
    """Nothing passes for the name of a reservation that would become another path."""
    with pytest.raises(ValueError, match="not the name of a reservation"):
        check_reservation_name(name)


@pytest.mark.parametrize(
    "line",
    [
        "NodeName=n1",
        "NodeName=n[1-9],gpu-1 CPUs=2 RealMemory=100 State=CLOUD",
        "nodename=n1 state=cloud",
        "NodeName=n1 Feature=a,b Gres=gpu:a100:4(S:0-1) Topology=default:s1 State=FUTURE Weight=3",
        "NodeName=n1  NodeAddr=10.0.0.1 NodeHostname=h1 Port=6818 State=CLOUD",
    ],
)
def test_lines_for_new_nodes(line: str) -> None:
    """What describes new nodes in a way that slurmctld understands passes as it is."""
    assert check_node_conf(line) == line


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("", "comes first"),
        ("CPUs=1 NodeName=n1", "comes first"),
        ("PartitionName=x Nodes=ALL", "comes first"),
        ("NodeName=", "hostlist is empty"),
        ("NodeName=n[1- State=CLOUD", "hostlist"),
        ("NodeName=n[3-1] State=CLOUD", "runs backwards"),
        ("NodeName=n[1-70000] State=CLOUD", "more than"),
        ("NodeName=ALL State=CLOUD", "name of a node"),
        ("NodeName=n1\nNodeName=n2", "name of a node"),
        ("NodeName=n1 State=CLOUD\nNodeName=n2", "without spaces"),
        ("NodeName=n1 NodeName=n[1-", "new node"),
        ("NodeName=n1 NodeAddr=h[1-", "one address"),
        ("NodeName=n1 NodeAddr=a,b", "one address"),
        ("NodeName=n1 NodeHostname=h[1-2]", "one address"),
        ("NodeName=n1 BcastAddr=z", "new node"),
        ("NodeName=n1 TRESWeights=cpu=x", "new node"),
        ("NodeName=n1 Port=99999", "port from 1 to 65535"),
        ("NodeName=n1 Port=0", "port from 1 to 65535"),
        ("NodeName=n[1-2] Port=1-9", "port from 1 to 65535"),
        ("NodeName=n1 CPUs=two", "needs a number"),
        ("NodeName=n1 CPUs=1 cpus=2", "comes twice"),
        ("NodeName=n1 Feature=a[1-", "without spaces"),
        ("NodeName=n1 State=", "without spaces"),
        ("NodeName=n1 junk", "new node"),
    ],
)
def test_lines_that_slurmctld_may_not_survive(line: str, problem: str) -> None:
    """What was seen to end slurmctld 26.05, and all that is not surely harmless, is refused."""
    with pytest.raises(ValueError, match=problem):
        check_node_conf(line)
