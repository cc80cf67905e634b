"""The whole table: what is refused, warned of, and admitted."""

from __future__ import annotations

from tests.support.webhook import refused_daemons, refused_workers
from tests.support.webhook.rule_cases import (
    DROP,
    EXTERNAL,
    GOOD,
    HA,
    IMAGE,
    MAX,
    MEMORY,
    WINDOW,
    Case,
    claim,
    config_map,
    key,
    manifest,
    mount,
    template,
    worker,
)

DENIED = [
    *refused_daemons.CONTROLLER,
    *refused_daemons.CONTROLLER_UPDATES,
    *refused_daemons.ACCOUNTING,
    *refused_workers.NODE_SET,
    *refused_workers.LOGIN_SET,
    *refused_workers.OTHERS,
]

# ------------------------------------------------------------------------------------------------- warnings

IPS = {"service.spec": {"externalIPs": ["10.0.0.1"]}}
WARNED = [
    *(
        Case(kind, IPS, "spec.service.spec.externalIPs", "LoadBalancer")
        for kind in ("Controller", "Accounting", "RestApi", "LoginSet")
    ),
    *(
        Case(kind, {}, "metadata.name", "'1x", name="1x")
        for kind in ("Controller", "Accounting", "RestApi", "LoginSet")
    ),
    Case(
        "Controller",
        {"configFileRefs": [{"name": "files"}]},
        "spec.configFileRefs[0]",
        "'motd'",
        others=(config_map("files", "motd", "gres.conf"),),
    ),
    Case("Controller", {"extraConf": "SlurmctldLogFile=/x"}, "spec.extraConf", "SlurmctldLogFile"),
    Case(
        "Controller",
        {"extraConf": "AccountingStorageType=accounting_storage/slurmdbd"},
        "spec.extraConf",
        "AccountingStorageType",
    ),
    Case("NodeSet", {"slurmd": MEMORY}, "spec.slurmd", "image"),
    *(
        Case(
            "NodeSet",
            {"autoscaling": {"maxReplicas": 4}, "extraConf": "CPUs=2 RealMemory=1000", field: value},
            f"spec.{field}",
            "spec.autoscaling",
        )
        for field, value in (("replicas", 3), ("pruneSlurmNodeRecords", "ScaledIn"))
    ),
    Case("NodeSet", {"slurmd": {"image": "any"}}, "spec.slurmd.resources", "resources.limits.memory"),
    Case(
        "NodeSet",
        {"slurmd": {**IMAGE, "args": ["-N", "x"]}, "replicas": 3},
        "spec.slurmd.args",
        "-N",
        before={"slurmd": {**IMAGE, "args": ["-N", "x"]}},
    ),
    Case("NodeSet", {MAX: "101%"}, f"spec.{MAX}", "'101%'"),
    Case("Controller", {"slurmctld": {}}, "spec.slurmctld", "image"),
    # Mistakes that were there before the change do not stand in the way of it.
    Case(
        "NodeSet",
        {MAX: "0%", "replicas": 3},
        f"spec.{MAX}",
        "'0%'",
        before={MAX: "0%"},
    ),
    Case(
        "Controller",
        {"extraConf": "MaxJobCount=5"},
        "spec.clusterName",
        "47",
        before={},
        name="n" * 41,
    ),
    Case(
        "Controller",
        {"extraConf": "AuthType=x\nMaxJobCount=5"},
        "spec.extraConf",
        "AuthType",
        before={"extraConf": "AuthType=x"},
    ),
]

# --------------------------------------------------------------------------------------------------- allowed

ALLOWED = [
    *(Case(kind, {}) for kind in GOOD),
    Case("Controller", {"slurmKeyRef": key("secret", "other")}, before={}),
    Case("Controller", {"slurmKeyRef": key("secret", "other")}, before={}, others=(worker("y"),)),
    Case("Controller", {"slurmKeyRef": key("secret", "a.jwks")}, before={}, others=(worker("x"),)),
    Case(
        "Controller",
        EXTERNAL | {"slurmKeyRef": key("secret", "other")},
        before=EXTERNAL,
        others=(worker("x"),),
    ),
    Case(
        "Controller",
        {"jwtKeyRef": key("j")},
        before={"jwtKeyRef": DROP, "jwtHs256KeyRef": key("j")},
    ),
    Case(
        "Controller",
        {"persistence": {"enabled": False, "existingClaim": "b"}},
        before={"persistence": {"enabled": False, "existingClaim": "a"}},
    ),
    Case("Controller", HA),
    Case("Controller", HA, others=(claim("state", "ReadWriteMany"),)),
    Case("Controller", EXTERNAL | {"slurmKeyRef": DROP, "jwtKeyRef": DROP}),
    Case("Controller", EXTERNAL, name="a.b"),
    Case(
        "Controller",
        {"configFileRefs": [{"name": "files"}]},
        others=(config_map("files", "gres.conf", "topology.yaml"),),
    ),
    Case(
        "Controller",
        {
            "extraConf": "# ClusterName=no\nSlurmctldParameters=idle_on_node_suspend\nMaxNodeCount=4096\n"
            "PartitionName=all Nodes=ALL Default=YES\nSlurmUser=slurm\nProlog=/x"
        },
    ),
    *(Case("Controller", {"extraConf": f"MaxNodeCount={text}"}) for text in ("65536", "0x10000", '"10"')),
    Case("Controller", {"clusterName": "c" * 40}),
    Case("NodeSet", {MAX: "100%"}),
    Case("NodeSet", {MAX: 1}),
    Case("NodeSet", WINDOW),
    Case("NodeSet", {"updateStrategy.scheduledUpdate.duration": "0"}),
    Case("NodeSet", {"template.spec": {"hostname": "gpu-"}, "ordinalPadding": 3}),
    Case("NodeSet", {"scalingMode": "DaemonSet", "template.spec": {"hostname": "gpu-"}}),
    *(
        Case("NodeSet", {"template.spec": {"hostname": "gpu-"}}, others=(manifest("NodeSet", other, "y"),))
        for other in (
            {"template.spec": {"hostname": "gpu-"}, "controllerRef": {"name": "d"}},
            {"template.spec": {"hostname": "gpu-"}, "replicas": 0},
            {"template.spec": {"hostname": "gpu-1-"}},
            {"template.spec": {"hostname": "gpu-"}, "scalingMode": "DaemonSet"},
        )
    ),
    Case("NodeSet", {"ordinalPadding": 9}),
    Case("NodeSet", {"extraConf": "Features=a,b Gres=gpu:8 Weight=10"}),
    Case("NodeSet", {"partition": {"enabled": True, "config": 'Default=YES MaxTime="1-0"'}}),
    Case("NodeSet", {"partition": {"enabled": False, "config": "Nodes=ALL"}}),
    Case("NodeSet", {"volumeClaimTemplates": [template("a")], "slurmd": mount("a")}),
    Case(
        "NodeSet",
        {
            "volumeClaimTemplates": [template("a")],
            "template.spec": {
                "containers": [
                    {"name": "side", **IMAGE, "volumeDevices": [{"name": "a", "devicePath": "/dev/x"}]}
                ]
            },
        },
    ),
    Case("NodeSet", {"ssh": {"enabled": False, "sssdConfRef": key("")}}),
    Case(
        "NodeSet",
        {"volumeClaimTemplates": [{**template("a"), "status": {}}], "slurmd": mount("a")},
        before={"volumeClaimTemplates": [template("a")], "slurmd": mount("a")},
    ),
    Case("RestApi", {"controllerRef": {"name": "d"}}, before={}),
    Case("Accounting", {"slurmKeyRef": key("secret", "other")}, before={}),
    Case(
        "Accounting",
        {"slurmKeyRef": key("secret", "other")},
        before={},
        others=(manifest("Controller", {}, "free"), worker("free")),
    ),
    Case(
        "Accounting",
        {"slurmKeyRef": key("secret", "a.jwks")},
        before={},
        others=(manifest("Controller", {"accountingRef": {"name": "x"}}, "user"), worker("user")),
    ),
    Case("Accounting", {"extraConf": "PurgeJobAfter=24month"}),
    Case("Token", {"username": "Alice_B", "secretRef": key("n", "SLURM_JWT")}),
    # A change that fixes a mistake is not checked against the old value.
    Case("NodeSet", {MAX: "10%"}, before={MAX: "0%"}),
]
