"""The chart of a cluster and its key: what helm is refused, it is refused before anything is changed."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import TYPE_CHECKING, Any

import pytest

from kubebox.binaries import provide
from tests.support.charts.helm import SLURM, Helm
from tests.support.webhook.rule_cases import worker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.webhook.served_webhook import Stage

NAME = "slurm-auth-slurm"
INSTALLED = "controllers,accountings,nodesets,restapis,configmaps,secrets"
NODESET = "slurm-worker-a"


def named(name: str) -> tuple[str, ...]:
    """Return the arguments of helm by which another key of the same Secret is used."""
    return ("--reuse-values", "--set", f"slurmKey.secretRef.name={NAME},slurmKey.secretRef.key={name}")


class Installed:
    """A release with a worker; no operator runs here, so a NodeSet has the status that a test gives it."""

    def __init__(self, helm: Helm) -> None:
        self.helm = helm

    def content(self) -> dict[str, dict[str, Any]]:
        """Return the objects, but for helm's own record, as they were written.

        Not by version: the first write of an object stores the default of its status.
        """
        what = ("get", INSTALLED, "--selector=app.kubernetes.io/part-of=slurm", "--output=json")
        items = json.loads(self.helm.kubectl(*what))["items"]
        for item in items:
            del item["metadata"]["resourceVersion"]
        return {f"{item['kind']}/{item['metadata']['name']}": item for item in items}

    def refused(self, *arguments: str | Path) -> str:
        """Run helm, which must fail and change nothing; return what it says."""
        before = self.content()
        said = self.helm(*arguments, fails=True)
        assert self.content() == before
        return said

    def count_workers(self, number: int) -> None:
        status = {"replicas": number, "nodeSetHash": "h", "selector": "s"}
        patch = json.dumps({"status": status})
        self.helm.kubectl(
            "patch", "nodeset", NODESET, "--subresource=status", "--type=merge", f"--patch={patch}"
        )

    def put(self, key: str, text: str) -> None:
        patch = json.dumps({"data": {key: base64.b64encode(text.encode()).decode()}})
        self.helm.kubectl("patch", "secret", NAME, "--type=merge", f"--patch={patch}")

    def data(self) -> dict[str, Any]:
        found = self.helm.get("secret", NAME)
        assert found is not None
        data: dict[str, Any] = found["data"]
        return data

    def key(self) -> str:
        found = self.helm.get("controller", "slurm")
        assert found is not None
        return str(found["spec"]["slurmKeyRef"]["key"])


@pytest.fixture
def installed(shared_stage: Stage, tmp_path: Path) -> Iterator[Installed]:
    """Hand out a release in the namespace that the webhook judges."""
    program = provide(["helm"], print)["helm"]
    helm = Helm(program, shared_stage.box, shared_stage.server.namespace, tmp_path)
    helm.install(
        "slurm", SLURM, "--set", "nodesets.a.replicas=1,accounting.enabled=true,mariadb.enabled=true"
    )
    helm.kubectl("create", "--filename=-", stdin=json.dumps(worker("slurm", NODESET)))
    yield Installed(helm)
    helm.kubectl("delete", "pod", NODESET, "--ignore-not-found")
    helm.uninstall("slurm")


async def test_helm_changes_nothing_when_a_key_is_refused(installed: Installed) -> None:
    """Another single key, by values or by a rollback, fails with advice, and no object is changed."""

    def story() -> None:
        helm, first = installed.helm, installed.data()
        # Helm goes on when an object is refused: everything with a key in it is.
        said = installed.refused("upgrade", "slurm", SLURM, *named("other"))
        assert "data[slurm.key]: is the key of Controller 'slurm'" in said
        assert said.count("spec.slurmKeyRef.key: names a single key") == 2, said
        assert "slurm.jwks (docs/guides/keys.md)" in said
        assert first["slurm.key"] not in said
        # Where the operator has counted the workers, the chart does not even try.
        installed.count_workers(1)
        said = installed.refused("upgrade", "slurm", SLURM, *named("other"))
        assert "slurmKey.secretRef.key is other, but the cluster has slurm.key: workers (of NodeSet" in said
        assert "slurm.jwks (docs/guides/keys.md)" in said
        said = installed.refused("upgrade", "slurm", SLURM, "--set", "slurmKey.secretRef.name=new")
        assert "slurmKey.secretRef.name is new, but the cluster has its key in the Secret slurm-auth" in said
        # A set that nobody made would be another key as well.
        said = installed.refused("upgrade", "slurm", SLURM, *named("slurm.jwks"))
        assert "slurm.jwks, which is not in the Secret slurm-auth-slurm" in said
        # The first of the three steps, with all workers there.
        installed.put("slurm.jwks", '{"keys": []}')
        helm.upgrade("slurm", SLURM, *named("slurm.jwks"))
        assert (installed.key(), installed.data()["slurm.key"]) == ("slurm.jwks", first["slurm.key"])
        # Back to the single key: by a rollback, which no template sees, and by values.
        said = installed.refused("rollback", "slurm", "1")
        assert "data[slurm.jwks]: is the set of keys of Controller 'slurm'" in said
        said = installed.refused("upgrade", "slurm", SLURM, *named("slurm.key"))
        assert "slurmKey.secretRef.key is slurm.key, but the cluster has slurm.jwks" in said
        # Without workers all of it is allowed.
        installed.count_workers(0)
        helm.kubectl("delete", "pod", NODESET)
        helm.upgrade("slurm", SLURM, *named("other"))
        assert (installed.key(), "other" in installed.data()) == ("other", True)

    await asyncio.to_thread(story)
