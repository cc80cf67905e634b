"""What the controller remembers between two passes over a NodeSet."""

from __future__ import annotations

from slurm_operator.controllers.nodeset.engine.memory import Memory
from slurm_operator.kube.meta import ObjectMeta
from slurm_operator.kube.models import Pod


def pod(uid: str, version: str) -> Pod:
    return Pod(metadata=ObjectMeta(name=uid, uid=uid, resource_version=version))


def test_our_own_change_counts_until_the_cache_has_it() -> None:
    """A pod is as the answer to our last change said, unless the cache has it as new or newer."""
    memory = Memory("set")
    ours = memory.changed["a"] = pod("a", "11")
    memory.changed["gone"] = pod("gone", "12")
    old, other = pod("a", "9"), pod("b", "10")
    assert memory.newest([old, other]) == [ours, other]
    assert memory.changed == {"a": ours}, "nobody waits for a pod that is gone"
    same = pod("a", "11")
    assert memory.newest([same])[0] is same
    assert memory.changed == {}
    assert memory.newest([old]) == [old]


def test_versions_that_are_no_numbers_say_nothing() -> None:
    """Where versions cannot be compared, the cache is right."""
    memory = Memory("set", changed={"a": pod("a", "x2")})
    cached = pod("a", "x1")
    assert memory.newest([cached])[0] is cached
