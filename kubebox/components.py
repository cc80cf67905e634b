"""The programs of a control plane and their command lines.

Pure: a box's layout, ports and wishes go in, a list of `Component` comes out in start order, and the
supervisor runs them. A node provider (see nodes.py) adds components of its own in the same form.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kubebox.ports import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from kubebox.spec import BoxSpec
    from kubebox.state import Layout

SERVICE_RANGE = "10.96.0.0/16"
ETCD, API_SERVER = "etcd", "kube-apiserver"
CONTROLLER_MANAGER, SCHEDULER = "kube-controller-manager", "kube-scheduler"

# Tests create objects in bursts: with the defaults (20 requests per second for the controller manager, 50 for
# the scheduler) they would wait for nothing else.
_QPS, _BURST = 2000, 4000
# A fake node on an overloaded machine renews its lease late; the default of 50 s would cost it its pods. Real
# ones renew it every 5 s, and that they can fail is what they are for.
_FAKE_NODE_GRACE, _NODE_GRACE = 600.0, 30.0


@dataclass(frozen=True)
class Component:
    """A program of the box: how to run it and which address answers 200 when it is ready."""

    name: str
    program: str
    arguments: tuple[str, ...]
    health: str | None = None
    port: int | None = None
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """What components are made from: the box's files, its wishes and its ports by purpose."""

    layout: Layout
    spec: BoxSpec
    ports: Mapping[str, int]
    # Where nodes, and everybody else, find the API server.
    address: str = LOOPBACK

    @property
    def server(self) -> str:
        """The API server's address."""
        return f"https://{self.address}:{self.ports[API_SERVER]}"

    @property
    def etcd(self) -> str:
        """The address of etcd for clients."""
        return f"http://{LOOPBACK}:{self.ports[ETCD]}"


def port_names(spec: BoxSpec) -> list[str]:
    """Return what a box of this spec needs ports for."""
    names = [ETCD, "etcd-peer", API_SERVER]
    if spec.controller_manager:
        names.append(CONTROLLER_MANAGER)
    if spec.scheduler:
        names.append(SCHEDULER)
    return names


def programs(spec: BoxSpec) -> list[str]:
    """Return the programs the control plane of this spec runs."""
    return [name for name in port_names(spec) if name != "etcd-peer"]


def controllers(plan: Plan) -> list[Component]:
    """Return what works on top of the API server, as far as the spec asks for it."""
    components = []
    if plan.spec.controller_manager:
        components.append(controller_manager(plan))
    if plan.spec.scheduler:
        components.append(scheduler(plan))
    return components


def etcd(plan: Plan) -> Component:
    """Describe a single etcd that trusts its RAM disk."""
    client, peer = plan.etcd, f"http://{LOOPBACK}:{plan.ports['etcd-peer']}"
    return Component(
        ETCD,
        ETCD,
        (
            "--name=box",
            f"--data-dir={plan.layout.etcd_data}",
            "--unsafe-no-fsync",
            "--socket-reuse-port",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=box={peer}",
            f"--quota-backend-bytes={6 << 30}",
            "--log-level=warn",
        ),
        f"{client}/health",
        plan.ports[ETCD],
    )


def api_server(plan: Plan) -> Component:
    """Describe the API server with RBAC, webhooks and the aggregation layer."""
    pki, spec = plan.layout.pki, plan.spec
    arguments = [
        f"--etcd-servers={plan.etcd}",
        f"--bind-address={plan.address}",
        f"--advertise-address={plan.address}",
        f"--secure-port={plan.ports[API_SERVER]}",
        "--permit-port-sharing=true",
        f"--tls-cert-file={pki / 'apiserver.crt'}",
        f"--tls-private-key-file={pki / 'apiserver.key'}",
        f"--client-ca-file={pki / 'ca.crt'}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--service-account-key-file={pki / 'service-account.pub'}",
        f"--service-account-signing-key-file={pki / 'service-account.key'}",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--allow-privileged=true",
        f"--kubelet-client-certificate={pki / 'kubelet-client.crt'}",
        f"--kubelet-client-key={pki / 'kubelet-client.key'}",
        f"--requestheader-client-ca-file={pki / 'front-proxy-ca.crt'}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={pki / 'front-proxy-client.crt'}",
        f"--proxy-client-key-file={pki / 'front-proxy-client.key'}",
        # Webhooks and extension servers are reached at pod addresses: without kube-proxy there is no service
        # network.
        "--enable-aggregator-routing=true",
    ]
    if plan.address == LOOPBACK:
        # 127.0.0.1 is no valid endpoint address, and nothing reaches the API server through its service here.
        arguments.append("--endpoint-reconciler-type=none")
    else:
        arguments.append(f"--kubelet-certificate-authority={pki / 'ca.crt'}")
        arguments.append("--kubelet-preferred-address-types=InternalIP")
    if not spec.controller_manager:
        # Nobody makes the `default` service account of a new namespace, and pods would be refused without it.
        arguments.append("--disable-admission-plugins=ServiceAccount")
    if spec.audit:
        arguments += [
            f"--audit-policy-file={plan.layout.folder / 'audit-policy.yaml'}",
            f"--audit-log-path={plan.layout.audit_log}",
        ]
    return Component(
        API_SERVER,
        API_SERVER,
        (*arguments, *spec.apiserver_args),
        f"{plan.server}/readyz",
        plan.ports[API_SERVER],
    )


def controller_manager(plan: Plan) -> Component:
    """Describe the controller manager, alone and with room to hurry."""
    pki, kubeconfig = plan.layout.pki, plan.layout.kubeconfig("controller-manager")
    return Component(
        CONTROLLER_MANAGER,
        CONTROLLER_MANAGER,
        (
            f"--kubeconfig={kubeconfig}",
            "--use-service-account-credentials=true",
            f"--service-account-private-key-file={pki / 'service-account.key'}",
            f"--root-ca-file={pki / 'ca.crt'}",
            f"--cluster-signing-cert-file={pki / 'ca.crt'}",
            f"--cluster-signing-key-file={pki / 'ca.key'}",
            f"--kube-api-qps={_QPS}",
            f"--kube-api-burst={_BURST}",
            f"--node-monitor-grace-period={_node_grace(plan.spec):g}s",
            "--leader-elect=false",
            *_serving(plan, CONTROLLER_MANAGER, kubeconfig),
        ),
        f"https://{LOOPBACK}:{plan.ports[CONTROLLER_MANAGER]}/healthz",
        plan.ports[CONTROLLER_MANAGER],
    )


def _node_grace(spec: BoxSpec) -> float:
    return spec.node_grace or (_NODE_GRACE if spec.nodes else _FAKE_NODE_GRACE)


def scheduler(plan: Plan) -> Component:
    """Describe the scheduler, alone and with room to hurry."""
    return Component(
        SCHEDULER,
        SCHEDULER,
        (
            f"--config={plan.layout.folder / 'scheduler.yaml'}",
            *_serving(plan, SCHEDULER, plan.layout.kubeconfig("scheduler")),
        ),
        f"https://{LOOPBACK}:{plan.ports[SCHEDULER]}/healthz",
        plan.ports[SCHEDULER],
    )


def _serving(plan: Plan, name: str, kubeconfig: Path) -> Sequence[str]:
    return (
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={plan.ports[name]}",
        "--permit-port-sharing=true",
        f"--tls-cert-file={plan.layout.pki / 'component-serving.crt'}",
        f"--tls-private-key-file={plan.layout.pki / 'component-serving.key'}",
    )


def config_files(plan: Plan) -> dict[Path, dict[str, Any]]:
    """Return the configuration files of the control plane (JSON is YAML, too)."""
    layout = plan.layout
    users = {"admin": "admin", "controller-manager": "controller-manager", "scheduler": "scheduler"}
    files = {layout.kubeconfig(user): kubeconfig(plan, pair) for user, pair in users.items()}
    files[layout.folder / "scheduler.yaml"] = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {
            "kubeconfig": str(layout.kubeconfig("scheduler")),
            "qps": _QPS,
            "burst": _BURST,
        },
        "leaderElection": {"leaderElect": False},
    }
    if plan.spec.audit:
        files[layout.folder / "audit-policy.yaml"] = {
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived"],
            "rules": [{"level": "Metadata"}],
        }
    return files


def kubeconfig(plan: Plan, pair: str) -> dict[str, Any]:
    """Return a kubeconfig that needs no other file."""
    pki = plan.layout.pki
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "kubebox",
                "cluster": {"server": plan.server, "certificate-authority-data": _base64(pki / "ca.crt")},
            }
        ],
        "users": [
            {
                "name": pair,
                "user": {
                    "client-certificate-data": _base64(pki / f"{pair}.crt"),
                    "client-key-data": _base64(pki / f"{pair}.key"),
                },
            }
        ],
        "contexts": [{"name": plan.layout.name, "context": {"cluster": "kubebox", "user": pair}}],
        "current-context": plan.layout.name,
    }


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def dump(content: Mapping[str, Any]) -> str:
    """Render a configuration file."""
    return json.dumps(content, indent=2) + "\n"
