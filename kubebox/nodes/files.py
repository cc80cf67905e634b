"""The configuration of a node's daemons. Pure: addresses in, text out.

Paths are those inside the node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kubebox.images.names import PAUSE_IMAGE

if TYPE_CHECKING:
    from kubebox.nodes.addresses import Block

CLUSTER_DNS, CLUSTER_DOMAIN = "10.96.0.10", "cluster.local"
ETC = "/etc/kubebox"
# containerd reads here, at every pull, how it reaches a registry.
CERTS = f"{ETC}/certs.d"
_LEASE_SECONDS = 20

DAEMONS = {
    "containerd": ("/usr/bin/containerd", "--config", f"{ETC}/containerd.toml"),
    "kube-proxy": ("/usr/local/bin/kube-proxy", f"--config={ETC}/kube-proxy.json"),
}


def kubelet_command(name: str, address: str) -> tuple[str, ...]:
    """Return the command line of a node's kubelet."""
    return (
        "/usr/local/bin/kubelet",
        f"--config={ETC}/kubelet.json",
        f"--kubeconfig={ETC}/kubelet.kubeconfig",
        f"--hostname-override={name}",
        f"--node-ip={address}",
        "--root-dir=/var/lib/kubelet",
    )


def kubelet(address: str, cgroup: str) -> dict[str, Any]:
    """Return the configuration of kubelet."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": address,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{ETC}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{ETC}/serving.crt",
        "tlsPrivateKeyFile": f"{ETC}/serving.key",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup,
        # Machines with the first version of control groups are refused otherwise.
        "failCgroupV1": False,
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        "clusterDNS": [CLUSTER_DNS],
        "clusterDomain": CLUSTER_DOMAIN,
        "resolvConf": "/etc/resolv.conf",
        "maxPods": 250,
        "registryPullQPS": 0,
        "serializeImagePulls": False,
        "kubeAPIQPS": 200,
        "kubeAPIBurst": 400,
        "nodeLeaseDurationSeconds": _LEASE_SECONDS,
        "nodeStatusUpdateFrequency": "5s",
        # All nodes see the same memory and file system: pressure there is nothing that evictions could cure.
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "localStorageCapacityIsolation": False,
        "shutdownGracePeriod": "0s",
        # Volumes of ConfigMaps and Secrets follow a change within seconds, not within a minute or two.
        "syncFrequency": "5s",
        "configMapAndSecretChangeDetectionStrategy": "Watch",
        # A daemon that waits for another one is tried again within seconds, not within minutes.
        "crashLoopBackOff": {"maxContainerRestartPeriod": "5s"},
    }


def kube_proxy(name: str, address: str, block: Block) -> dict[str, Any]:
    """Return the configuration of kube-proxy."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": f"{ETC}/kube-proxy.kubeconfig"},
        "hostnameOverride": name,
        "mode": "nftables",
        "clusterCIDR": block.pods,
        "bindAddress": address,
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        # Limits of the whole machine; zero leaves them as they are.
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
    }


def cni(block: Block, index: int) -> dict[str, Any]:
    """Return the configuration of the pod network: a bridge in the node, addresses handed out there."""
    return {
        "cniVersion": "1.0.0",
        "name": "kubebox",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "pods",
                "isGateway": True,
                "ipMasq": False,
                "hairpinMode": True,
                "ipam": {
                    "type": "host-local",
                    # Not in /var: after a reboot no pod has its address any more.
                    "dataDir": "/run/cni",
                    "ranges": [[{"subnet": block.node_pods(index)}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "backend": "nftables", "capabilities": {"portMappings": True}},
        ],
    }


def registry_hosts(address: str) -> str:
    """Return how containerd reaches a registry without TLS."""
    return f'server = "http://{address}"\n\n[host."http://{address}"]\ncapabilities = ["pull", "resolve"]\n'


def containerd() -> str:
    """Return the configuration of containerd."""
    return f"""\
version = 3
root = "/var/lib/containerd"
state = "/run/containerd"

[grpc]
  address = "/run/containerd/containerd.sock"

[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.registry]
    config_path = "{CERTS}"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "{PAUSE_IMAGE}"

[plugins.'io.containerd.cri.v1.runtime']
  disable_hugetlb_controller = true
  # The machine may not let us lower the score of a process below our own.
  restrict_oom_score_adj = true
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      BinaryName = "/usr/bin/runc"
      SystemdCgroup = false
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["/usr/lib/cni"]
    conf_dir = "{ETC}/cni"
"""
