"""drain and undrain on a real API server: the annotation that the operator honours, and whose it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.support.plugin.bench import Bench

CORDON = "nodeset.slinky.slurm.net/pod-cordon"
RIGHTS = (
    "list nodesets.slinky.slurm.net",
    "list controllers.slinky.slurm.net",
    "list pods",
    "get pods",
    "patch pods",
)


async def test_drain_and_undrain(bench: Bench) -> None:
    """A drain is a cordon of the pod with a reason; its user can undo it, and another one cannot."""
    bench.worker("workers-0")
    ann, bob = bench.user("ann", *RIGHTS), bench.user("bob", *RIGHTS)
    ended = await bench.run("drain", "workers-0", "--reason", "fan 3 broken", kubeconfig=ann)
    assert (ended.code, ended.err) == (0, ""), ended
    annotations = bench.get("pod", "workers-0")["metadata"]["annotations"]
    name = f"system:serviceaccount:{bench.namespace}:ann"
    assert annotations[CORDON] == "true"
    assert annotations[f"{CORDON}-reason"] == f"fan 3 broken (by {name})"
    again = await bench.run("drain", "workers-0", "--reason", "other", kubeconfig=bob)
    assert (again.code, "drained by a user already" in again.out) == (0, True)
    refused = await bench.run("undrain", "workers-0", kubeconfig=bob)
    assert (refused.code, "--force" in refused.err, refused.err.count("\n")) == (1, True, 1)
    assert CORDON in bench.get("pod", "workers-0")["metadata"]["annotations"]
    ended = await bench.run("undrain", "workers-0", kubeconfig=ann)
    assert ended.code == 0, ended
    left = bench.get("pod", "workers-0")["metadata"]["annotations"]
    assert not [name for name in left if name.startswith(CORDON)]


async def test_a_drain_of_the_operator_is_left_alone(bench: Bench) -> None:
    """What the operator cordoned is undone by its cause only."""
    bench.worker("workers-0", **{CORDON: "true", f"{CORDON}-by": "ScaleIn"})
    ended = await bench.run("undrain", "workers-0", "--force")
    assert (ended.code, "drained by the operator (ScaleIn)" in ended.err) == (1, True)
    assert bench.get("pod", "workers-0")["metadata"]["annotations"][CORDON] == "true"


async def test_a_user_who_may_not_patch_pods_cannot_drain(bench: Bench) -> None:
    """It is one line and code 4."""
    bench.worker("workers-0")
    reader = bench.user("reader", *RIGHTS[:-1])
    ended = await bench.run("drain", "workers-0", "--reason", "x", kubeconfig=reader)
    assert (ended.code, ended.out, ended.err.count("\n")) == (4, "", 1), ended
