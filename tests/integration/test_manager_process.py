"""`slurm-operator manager` as a process: what it says, when it is ready, and how it ends."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from typing import TYPE_CHECKING

import yaml

from tests.support.charts.chart_accounts import allow_lease, operator_kubeconfig
from tests.support.metrics_over_tls import check_secure_metrics
from tests.support.processes import LOOPBACK_FLAGS, MANAGER, PROGRAMS, Process, eventually, install_crds
from tests.support.service_accounts import kubeconfig_with_token, sees_nodes, service_account

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kubebox import Box

# Objects that the operator made are watched by their labels.
CHILDREN = (
    "secrets",
    "configmaps",
    "services",
    "pods",
    "persistentvolumeclaims",
    "statefulsets.apps",
    "deployments.apps",
    "controllerrevisions.apps",
    "poddisruptionbudgets.policy",
)
WATCHED = ("--verb=get,list,watch", *(f"--resource={child}" for child in CHILDREN))
PLURALS = ("accountings", "clusters", "controllers", "loginsets", "nodesets", "restapis", "tokens")


def manager(box: Box | None, folder: Path, *flags: str, **env: str) -> Process:
    """Start a manager, with the rights of the chart unless it is told who it is."""
    if box is not None:
        env = {"KUBECONFIG": str(operator_kubeconfig(box)), **env}
    return Process(None, folder / "manager.log", [*MANAGER, *LOOPBACK_FLAGS, *flags], **env)


# --- readiness


async def test_ready_with_crds_and_gone_on_sigterm(kube_box: Box, tmp_path: Path) -> None:
    """With the CRDs installed the process becomes ready, and SIGTERM ends it with 0."""
    install_crds(kube_box)
    with manager(kube_box, tmp_path) as process:
        await eventually(process.ready, "ready")
        status, text = await process.get("health", "/readyz?verbose")
        assert (status, "[+]caches ok" in text, "[+]crds ok" in text) == (200, True, True)
        assert await process.get("health", "/healthz") == (200, "ok")
        assert process.logged("starting") is not None
        process.signal(signal.SIGTERM)
        assert await process.ended() == 0
        assert not [entry for entry in process.entries() if entry["level"] == "error"], process.text()


async def test_missing_crds_are_named_until_they_appear(
    kube_box_factory: Callable[..., Box], tmp_path: Path
) -> None:
    """Without CRDs the process lives, says which are missing and what to do, and is ready once they exist."""
    box = kube_box_factory()
    with manager(box, tmp_path) as process:

        async def names_all() -> bool:
            status, text = await process.get("health", "/readyz")
            return status == 503 and all(f"{plural}.slinky.slurm.net" in text for plural in PLURALS)

        await eventually(names_all, "all seven CRDs are named")
        status, text = await process.get("health", "/readyz")
        assert status == 503
        assert "slurm-operator crds | kubectl apply" in text
        assert (await process.get("health", "/healthz"))[0] == 200
        entry = await eventually(
            lambda: process.logged("CustomResourceDefinitions are not installed"), "the log says it too"
        )
        assert "nodesets.slinky.slurm.net" in entry["missing"]
        install_crds(box)
        await eventually(process.ready, "ready once they are installed", 90)
        process.signal(signal.SIGINT)
        assert await process.ended() == 0


async def test_forbidden_kinds_keep_it_unready(kube_box: Box, kube_namespace: str, tmp_path: Path) -> None:
    """Ready means allowed as well: without RBAC the probe names each kind that may not be listed."""
    install_crds(kube_box)
    token = service_account(kube_box, kube_namespace, "nobody")
    config = kubeconfig_with_token(kube_box, tmp_path / "kubeconfig", token)
    with manager(None, tmp_path, f"--kubeconfig={config}") as process:

        async def forbidden() -> bool:
            text = (await process.get("health", "/readyz"))[1]
            watched = (*PLURALS, "nodes", *(child.partition(".")[0] for child in CHILDREN))
            return all(f'cannot list resource "{plural}"' in text for plural in watched)

        await eventually(forbidden, "all kinds are forbidden")
        assert token not in process.text()
        kinds = (f"--resource={plural}.slinky.slurm.net" for plural in PLURALS)
        rule = *WATCHED, "--resource=nodes", *kinds
        kube_box.kubectl("create", "clusterrole", kube_namespace, *rule)
        who = f"--serviceaccount={kube_namespace}:nobody"
        kube_box.kubectl(
            "create", "clusterrolebinding", kube_namespace, f"--clusterrole={kube_namespace}", who
        )
        try:
            await eventually(process.ready, "ready once it is allowed", 90)
        finally:
            kube_box.kubectl("delete", "clusterrole,clusterrolebinding", kube_namespace)


async def test_one_namespace_needs_no_cluster_wide_rights_but_to_see_nodes(
    kube_box: Box, kube_namespace: str, tmp_path: Path
) -> None:
    """With --namespaces a Role in that namespace, and a look at the nodes, is enough to become ready."""
    install_crds(kube_box)
    token = service_account(kube_box, kube_namespace, "local")
    rule = *WATCHED, *(f"--resource={plural}.slinky.slurm.net" for plural in PLURALS)
    kube_box.kubectl("create", "role", "local", "-n", kube_namespace, *rule)
    who = f"--serviceaccount={kube_namespace}:local"
    kube_box.kubectl("create", "rolebinding", "local", "-n", kube_namespace, "--role=local", who)
    config = kubeconfig_with_token(kube_box, tmp_path / "kubeconfig", token)
    with (
        sees_nodes(kube_box, kube_namespace, "local"),
        manager(None, tmp_path, f"--namespaces={kube_namespace}", KUBECONFIG=str(config)) as process,
    ):
        await eventually(process.ready, "ready")


# --- metrics and profiles


async def test_metrics_are_scraped(kube_box: Box, tmp_path: Path) -> None:
    """A scrape shows requests, caches and the process itself under the names dashboards use."""
    install_crds(kube_box)
    with manager(kube_box, tmp_path) as process:
        await eventually(process.ready, "ready")
        status, text = await process.get("metrics", "/metrics")
        assert status == 200
        host = kube_box.server.removeprefix("https://")
        assert f'rest_client_requests_total{{code="200",host="{host}",method="GET"}}' in text
        assert 'slurm_operator_cache_objects{kind="NodeSet"}' in text
        assert "slurm_operator_event_loop_lag_seconds_count" in text
        assert "process_resident_memory_bytes" in text


async def test_secure_metrics(kube_box: Box, kube_namespace: str, tmp_path: Path) -> None:
    """Over TLS: no token 401, a bad token 401, a token without the right 403, with it 200."""
    install_crds(kube_box)
    secure = ("--set", "operator.metricsSecure=true")
    own = await asyncio.to_thread(operator_kubeconfig, kube_box, *secure, namespace=kube_namespace)
    # The lease of a replica that only waits must not keep it from asking who may read.
    flags = ("--metrics-secure", "--leader-elect", f"--leader-elect-namespace={kube_namespace}")
    with manager(None, tmp_path, *flags, KUBECONFIG=str(own)) as process:
        await check_secure_metrics(kube_box, kube_namespace, process, "# TYPE workqueue_depth gauge")


async def test_profile_server(kube_box: Box, tmp_path: Path) -> None:
    """With --profile the tasks of the running operator can be seen; without it nothing listens."""
    with manager(
        kube_box, tmp_path, "--profile", "--profile-addr=127.0.0.1:0", "--metrics-addr=0"
    ) as process:
        await process.port("health")
        _, text = await process.get("profile", "/debug/pprof/goroutine")
        assert "informer NodeSet" in text
        assert process.logged("listening", server="metrics") is None


# --- ends


async def test_a_signal_during_the_greeting_is_obeyed(tmp_path: Path) -> None:
    """While the API server does not answer the first question, SIGTERM ends the process with 0."""
    asked = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "silent", "user": "u"}}],
        "clusters": [{"name": "silent", "cluster": {"server": address}}],
        "users": [{"name": "u", "user": {}}],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **config}))
    async with server:
        with manager(None, tmp_path, f"--kubeconfig={path}") as process:
            async with asyncio.timeout(30):
                await asked.wait()
            process.signal(signal.SIGTERM)
            assert await process.ended() == 0, process.text()
            assert "cannot work with" not in process.text()


async def test_what_does_not_stop_is_cut_off_and_the_lease_expires(
    kube_box: Box, kube_namespace: str, tmp_path: Path
) -> None:
    """What ignores its cancellation does not keep the process: it ends with 1 and the lease is not freed."""
    install_crds(kube_box)
    allow_lease(kube_box, kube_namespace)
    own = operator_kubeconfig(kube_box)
    program = [str(PROGRAMS / "stubborn.py"), "manager", *LOOPBACK_FLAGS]
    flags = ["--leader-elect", f"--leader-elect-namespace={kube_namespace}"]
    with Process(None, tmp_path / "stubborn.log", [*program, *flags], KUBECONFIG=str(own)) as process:
        await eventually(lambda: process.logged("controllers started"), "it leads")
        assert "[+]lease ok" in (await process.get("health", "/healthz?verbose"))[1]
        process.signal(signal.SIGTERM)
        assert await process.ended() == 1
        assert process.logged("not everything stopped: the lease is left to expire", still=["mule"])
        assert process.logged("lease released") is None
        assert "did not stop: mule" in process.text().splitlines()[-1]
    holder = "jsonpath={.spec.holderIdentity}"
    assert kube_box.kubectl("get", "lease", "slurm-operator", "-n", kube_namespace, "-o", holder)


async def test_a_lost_lease_ends_the_process(kube_box: Box, kube_namespace: str, tmp_path: Path) -> None:
    """When another holder appears in the Lease, the process ends with 1 and says why."""
    install_crds(kube_box)
    allow_lease(kube_box, kube_namespace)
    flags = ("--leader-elect", f"--leader-elect-namespace={kube_namespace}")
    with manager(kube_box, tmp_path, *flags) as process:
        await eventually(lambda: process.logged("leading"), "it leads")
        patch = json.dumps({"spec": {"holderIdentity": "thief"}})
        kube_box.kubectl(
            "patch", "lease", "slurm-operator", "-n", kube_namespace, "--type=merge", "-p", patch
        )
        assert await process.ended() == 1
        assert process.logged("another process took the lease", holder="thief") is not None
        assert "lease is lost" in process.text().splitlines()[-1]
        assert "Traceback" not in process.text()


async def test_the_lease_lives_in_the_namespace_of_the_context(
    kube_box: Box, kube_namespace: str, tmp_path: Path
) -> None:
    """Without --leader-elect-namespace the Lease is in the namespace that the kubeconfig names."""
    install_crds(kube_box)
    allow_lease(kube_box, kube_namespace)
    config = yaml.safe_load(operator_kubeconfig(kube_box).read_text())
    for context in config["contexts"]:
        context["context"]["namespace"] = kube_namespace
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    with manager(None, tmp_path, "--leader-elect", KUBECONFIG=str(path)) as process:
        await eventually(lambda: process.logged("leading"), "it leads")
        holder = kube_box.kubectl(
            "get", "lease", "slurm-operator", "-n", kube_namespace, "-o", "jsonpath={.spec.holderIdentity}"
        )
        assert holder.startswith(f"{socket.gethostname()}_")
        process.signal(signal.SIGTERM)
        assert await process.ended() == 0


async def test_an_outage_is_survived(kube_box_factory: Callable[..., Box], tmp_path: Path) -> None:
    """An API server that goes away and comes back ends nothing: the process is alive and ready afterwards."""
    box = kube_box_factory()
    install_crds(box)
    with manager(box, tmp_path) as process:
        await eventually(process.ready, "ready")
        box.stop("kube-apiserver")
        assert (await process.get("health", "/healthz"))[0] == 200
        box.start("kube-apiserver")
        box.kubectl("create", "-f", "-", stdin=_OBJECT)

        async def seen() -> bool:
            return (
                'slurm_operator_cache_objects{kind="Token"} 1.0'
                in (await process.get("metrics", "/metrics"))[1]
            )

        await eventually(seen, "what was created after the outage is in the cache")
        assert await process.ready()


_OBJECT = """
apiVersion: slinky.slurm.net/v1beta1
kind: Token
metadata: {name: t, namespace: default}
spec:
  jwtKeyRef: {name: k, key: jwt.key}
  username: someone
"""
