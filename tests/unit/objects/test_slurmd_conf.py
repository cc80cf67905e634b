"""The argument of slurmd's --conf, and the variables for its resources."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_operator.objects.desired import Unbuildable
from slurm_operator.objects.slurmd_conf import node_conf, resource_environment
from tests.support.executables import read_by_a_shell
from tests.support.objects.resources import node_set

TOPOLOGY = "'\"$SLINKY_TOPOLOGY\"'"


def conf(extra: str = "", **template: Any) -> str:
    return node_conf(node_set("gpu", extraConf=extra, template={"spec": template}))


@pytest.mark.parametrize(
    ("extra", "wanted"),
    [
        ("", f"'Features=gpu Topology={TOPOLOGY}'"),
        ("Feature=a100,nvlink Gres=gpu:8 weight=10",
         f"'Features=a100,gpu,nvlink Gres=gpu:8 Weight=10 Topology={TOPOLOGY}'"),
        ("Features=b,a feature=a FEATURES=gpu,,c", f"'Features=a,b,c,gpu Topology={TOPOLOGY}'"),
        ("gres=gpu:8 Gres=shard:4", f"'Features=gpu Gres=gpu:8,shard:4 Topology={TOPOLOGY}'"),
        ("CPUs=4  RealMemory=1000\n", f"'Cpus=4 Features=gpu Realmemory=1000 Topology={TOPOLOGY}'"),
        ("weight=1 topology=topo-switch:s1", "'Features=gpu Weight=1 Topology=topo-switch:s1'"),
        ("NodeAddr='\"$MY_IP\"'", f"'Features=gpu Nodeaddr='\"$MY_IP\"' Topology={TOPOLOGY}'"),
        ("Weight=", f"'Features=gpu Weight= Topology={TOPOLOGY}'"),
    ],
)  # fmt: skip
def test_options_are_sorted_joined_and_quoted(extra: str, wanted: str) -> None:
    """Options are sorted, the topology last, values of one name joined, and all of it in single quotes."""
    assert conf(extra) == wanted


@pytest.mark.parametrize("extra", ["Weight", "Weight=1 two words", "=1"])
def test_what_is_no_option_is_refused(extra: str) -> None:
    """Something that is not of the form Option=value is refused, with the field that it is in."""
    with pytest.raises(Unbuildable, match=r"spec.extraConf: .* Option=value"):
        conf(extra)


@pytest.mark.parametrize("extra", ["A='", "A=b'c'd", "A='\"$X'", "A='\"$X\\\"'", "A='\"`id`\"'", "'=1"])
def test_a_quote_that_ends_the_argument_is_refused(extra: str) -> None:
    """No value can leave the quotes, except to have a variable filled in."""
    with pytest.raises(Unbuildable, match=r"spec.extraConf: .* single quote"):
        conf(extra)


def test_a_name_that_is_no_feature_is_refused() -> None:
    """A hostname prefix that could not be a feature is refused, and not written into the argument."""
    with pytest.raises(Unbuildable, match=r"spec.template.spec.hostname"):
        conf(hostname="a,b-")


def test_the_prefix_of_hostnames_is_the_feature() -> None:
    """The feature is the prefix of hostnames without its dash, as slurm.conf has it."""
    assert conf(hostname="big-") == f"'Features=big Topology={TOPOLOGY}'"


@given(st.text(alphabet='ab=$;&|<>*?~#"\\(){}[]!%', min_size=1).map(lambda text: f"Weight=x{text}"))
def test_to_a_shell_it_is_one_word(extra: str) -> None:
    """Whatever a value contains, the shell of the entrypoint reads one word, with the topology filled in."""
    (word,) = read_by_a_shell(conf(extra), SLINKY_TOPOLOGY="a:b c'd\"$e")
    assert word == f"Features=gpu {extra} Topology=a:b c'd\"$e"


# -------------------------------------------------------------------------------------------------- resources


def environment(slurmd: dict[str, Any], **template: Any) -> dict[str, str]:
    nodeset = node_set("gpu", slurmd=slurmd, template={"spec": template})
    return {item["name"]: item["value"] for item in resource_environment(nodeset)}


def limits(**values: Any) -> dict[str, Any]:
    return {"resources": {"limits": values}}


@pytest.mark.parametrize(
    ("given_limits", "cpus", "memory"),
    [
        ({}, "0", "0"),
        ({"cpu": "3500m", "memory": "10Gi"}, "4", "10240"),
        ({"cpu": 64, "memory": "1500M"}, "64", "1430"),
        ({"cpu": "1000", "memory": "1Ti"}, "1000", "1048576"),
        ({"cpu": 0.5, "memory": 1048575}, "1", "0"),
    ],
)
def test_resources_are_whole_numbers(given_limits: dict[str, Any], cpus: str, memory: str) -> None:
    """CPUs are rounded up, memory is in MiB and rounded down, and no limit is 0."""
    assert environment(limits(**given_limits)) == {"POD_CPUS": cpus, "POD_MEMORY": memory}


@pytest.mark.parametrize(
    ("memory", "offered"),
    [(None, "0"), ("100Mi", "50"), ("256Mi", "192"), ("2Gi", "1946"), ("10Gi", "9728"), ("512Gi", "523264")],
)
def test_some_memory_is_kept_for_slurmd(memory: str | None, offered: str) -> None:
    """With a reserve, jobs get a twentieth less: at least 64 MiB, at most 1 GiB, and never less than half."""
    nodeset = node_set("gpu", slurmd=limits(memory=memory) if memory else {})
    found = {item["name"]: item["value"] for item in resource_environment(nodeset, reserve=True)}
    assert found["POD_MEMORY"] == offered


def test_limits_of_the_container_come_before_those_of_the_pod() -> None:
    """Each resource is limited by the container if it has a limit of its own, else by the pod."""
    pod = limits(cpu="8", memory="8Gi")
    assert environment(limits(cpu="2"), **pod) == {"POD_CPUS": "2", "POD_MEMORY": "8192"}
    other = {"containers": [{"name": "side", **limits(cpu="1")}, {"name": "slurmd", **limits(cpu="3")}]}
    assert environment(limits(cpu="2"), **pod, **other)["POD_CPUS"] == "3"


def test_a_limit_that_is_no_quantity_is_refused() -> None:
    """A mistake in a limit is reported with its field."""
    with pytest.raises(Unbuildable, match=r"spec.slurmd.resources.limits.cpu: 'four' "):
        environment(limits(cpu="four"))
    with pytest.raises(Unbuildable, match=r"spec.slurmd.resources: "):
        environment({"resources": ["cpu"]})
