"""What is refused of NodeSets, LoginSets, RestApis, Tokens and Clusters."""

from __future__ import annotations

from tests.support.webhook.rule_cases import (
    IMAGE,
    MAX,
    TOO_LONG,
    WINDOW,
    Case,
    key,
    manifest,
    mount,
    template,
    twice,
)

_SCALED = {"autoscaling": {"maxReplicas": 4}, "extraConf": "CPUs=2 RealMemory=1000"}

NODE_SET = [
    *(
        Case("NodeSet", _SCALED | edits, path, named)
        for edits, path, named in (
            ({"extraConf": "CPUs=2"}, "spec.autoscaling", "spec.slurmd.resources.limits.memory"),
            (
                {"extraConf": "RealMemory=9"},
                "spec.autoscaling",
                "spec.slurmd.resources.limits.cpu",
            ),
            ({"extraConf": "CPUs=2 RealMemory=0"}, "spec.extraConf", "RealMemory=0"),
            ({"extraConf": "CPUs=2 RealMemory=9 State=UP"}, "spec.extraConf", "State="),
            ({"extraConf": "CPUs=2 RealMemory=9 Gres='\"$G\"'"}, "spec.extraConf", "Gres="),
            ({"extraConf": "CPUs=2 RealMemory=9 Nonsense=1"}, "spec.extraConf", "'Nonsense=1'"),
            ({"scalingMode": "DaemonSet"}, "spec.autoscaling", "DaemonSet"),
            ({"template.spec": {"hostNetwork": True}}, "spec.autoscaling", "hostNetwork"),
            (WINDOW, "spec.autoscaling", "ScheduledUpdate"),
            (
                {"autoscaling": {"minReplicas": 5, "maxReplicas": 4}},
                "spec.autoscaling.minReplicas",
                "maxReplicas",
            ),
        )
    ),
    Case("NodeSet", {"controllerRef": {"name": ""}}, "spec.controllerRef.name", "Controller"),
    *(Case("NodeSet", {MAX: value}, f"spec.{MAX}", str(value)) for value in (0, -1)),
    *(Case("NodeSet", {MAX: text}, f"spec.{MAX}", repr(text)) for text in ("0%", "00%")),
    *(
        Case("NodeSet", {MAX: text}, f"spec.{MAX}", repr(text))
        for text in ("-5%", "+0%", "5", "half", "", "5 %", "\u0665%", "0.0%", "1e1%")
    ),
    *(
        Case("NodeSet", {"slurmd": IMAGE | {part: words}}, f"spec.slurmd.{part}", "-N")
        for part, words in (
            ("args", ["-N", "x"]),
            ("args", ["-vN", "x"]),
            ("args", ["-v -Nx"]),
            ("command", ["/usr/sbin/slurmd", "-D", "-N", "x"]),
        )
    ),
    Case(
        "NodeSet",
        {"template.spec": {"containers": [{"name": "slurmd", "args": ["-N", "x"]}]}},
        "spec.template.spec.containers[0].args",
        "hostname-override",
    ),
    Case(
        "NodeSet",
        WINDOW | {"updateStrategy.scheduledUpdate.duration": "59s"},
        "spec.updateStrategy.scheduledUpdate.duration",
        "1m",
    ),
    Case(
        "NodeSet",
        WINDOW | {"updateStrategy.scheduledUpdate.duration": "0"},
        "spec.updateStrategy.scheduledUpdate.duration",
        "1m",
    ),
    Case(
        "NodeSet",
        {"updateStrategy.scheduledUpdate.duration": "-1h"},
        "spec.updateStrategy.scheduledUpdate.duration",
        "1m",
    ),
    Case(
        "NodeSet",
        {"ssh": {"enabled": True, "sssdConfRef": key("")}},
        "spec.ssh.sssdConfRef.name",
        "sssd.conf",
    ),
    *(
        Case("NodeSet", {"template.spec": {"hostname": name}}, "spec.template.spec.hostname", named)
        for name, named in (
            ("-gpu", "'-gpu'"),
            ("GPU-", "'GPU-'"),
            ("gpu.a-", "'gpu.a-'"),
            ("g" * 63, "63"),
            (7, "a string"),
        )
    ),
    *(
        Case(
            "NodeSet",
            {"template.spec": {"hostname": prefix}, "replicas": replicas},
            "spec.template.spec.hostname",
            f"{name!r}",
            others=(manifest("NodeSet", {"template.spec": {"hostname": "gpu-"}, "replicas": 20}, "y"),),
            before=before,
        )
        for prefix, replicas, name, before in (
            ("gpu-", 1, "gpu-0", None),
            ("gpu-1", 1, "gpu-10", None),
            ("gpu-", 1, "gpu-0", {"template.spec": {"hostname": "cpu-"}}),
        )
    ),
    Case("NodeSet", {}, "metadata.name", "63", name=TOO_LONG),
    Case("NodeSet", {"extraConf": "Weight=1 gpu"}, "spec.extraConf", "'gpu'"),
    Case("NodeSet", {"extraConf": "Weight='1"}, "spec.extraConf", "Weight='1"),
    Case("NodeSet", {"extraConf": "NodeName=x"}, "spec.extraConf", "NodeName"),
    Case("NodeSet", {"extraConf": "nodeaddr=10.0.0.1"}, "spec.extraConf", "nodeaddr"),
    *(
        Case("NodeSet", {"partition": {"enabled": True, "config": text}}, "spec.partition.config", named)
        for text, named in (
            ("Default=YES PartitionName=x", "PartitionName"),
            ("nodename=x", "nodename"),
            ("Nodes=ALL", "Nodes"),
            ("NodeSet = x", "NodeSet"),
            ("Default=YES # State=DOWN", "'#'"),
            ("Default", "'Default'"),
            ("MaxTime=1\rMaxNodes=2", "PartitionName=x"),
            ("MaxTime=1\\", "PartitionName=x"),
        )
    ),
    Case("NodeSet", {"ordinalPadding": 10}, "spec.ordinalPadding", " 9"),
    Case("NodeSet", {"ordinalPadding": 2**31 - 1}, "spec.ordinalPadding", " 9", crd="63"),
    *(
        Case("NodeSet", {name: -1}, f"spec.{name}", "-1")
        for name in ("minReadySeconds", "revisionHistoryLimit")
    ),
    Case(
        "NodeSet",
        {"volumeClaimTemplates": [template("scratch")]},
        "spec.volumeClaimTemplates[0]",
        "'scratch'",
    ),
    Case(
        "NodeSet",
        {"volumeClaimTemplates": [{"metadata": {}}]},
        "spec.volumeClaimTemplates[0].metadata.name",
        "name",
    ),
    Case(
        "NodeSet",
        {"volumeClaimTemplates": [template("a"), template("a")], "slurmd": mount("a")},
        "spec.volumeClaimTemplates",
        "name",
    ),
    Case("NodeSet", {"slurmd": mount("nix")}, "spec.slurmd.volumeMounts", "'nix'"),
    Case(
        "NodeSet",
        {"template.spec": {"containers": twice("side")}},
        "spec.template.spec.containers[1].name",
        "'side'",
    ),
    Case(
        "NodeSet",
        {"slurmd": {**IMAGE, "resources": {"limits": {"cpu": "many"}}}},
        "spec.slurmd.resources.limits.cpu",
        "'many'",
    ),
    Case(
        "NodeSet",
        {"template.spec": {"nodeSelector": {"a": 1}}},
        "spec.template.spec.nodeSelector[...]",
        "a string",
    ),
    Case(
        "NodeSet",
        {"controllerRef": {"name": "d"}},
        "spec.controllerRef",
        "'c'",
        before={},
        crd="controllerRef",
    ),
    Case(
        "NodeSet",
        {"volumeClaimTemplates": [template("b")], "slurmd": mount("b")},
        "spec.volumeClaimTemplates",
        "changed",
        before={"volumeClaimTemplates": [template("a")], "slurmd": mount("a")},
    ),
    Case("NodeSet", {MAX: "0%"}, f"spec.{MAX}", "'0%'", before={}),
]

LOGIN_SET = [
    Case("LoginSet", {"controllerRef": {"name": ""}}, "spec.controllerRef.name", "Controller"),
    Case("LoginSet", {"sssdConfRef": key("")}, "spec.sssdConfRef.name", "sssd.conf"),
    Case("LoginSet", {}, "metadata.name", "63", name="n" * 64),
    Case("LoginSet", {"login": mount("nix")}, "spec.login.volumeMounts", "'nix'"),
    Case("LoginSet", {"login": {**IMAGE, "ports": 22}}, "spec.login.ports", "a list"),
    Case("LoginSet", {"service.port": 99999}, "spec.service.port", "99999", crd="65535"),
    Case(
        "LoginSet",
        {"template.spec": {"initContainers": [{"name": "login", **IMAGE}]}},
        "spec.template.spec.initContainers",
        "'login'",
    ),
    Case(
        "LoginSet",
        {"controllerRef": {"name": "d"}},
        "spec.controllerRef",
        "'c'",
        before={},
        crd="controllerRef",
    ),
]

OTHERS = [
    Case("RestApi", {"controllerRef": {"name": ""}}, "spec.controllerRef.name", "Controller"),
    Case("RestApi", {"replicas": -2}, "spec.replicas", "-2"),
    Case("RestApi", {"slurmrestd": mount("nix")}, "spec.slurmrestd.volumeMounts", "'nix'"),
    Case("RestApi", {}, "metadata.name", "'a.b-restapi'", name="a.b"),
    Case(
        "RestApi",
        {"template.spec": {"containers": twice("a")}},
        "spec.template.spec.containers[1].name",
        "'a'",
    ),
    Case("Token", {"jwtKeyRef": key("")}, "spec.jwtKeyRef", "Secret"),
    Case("Token", {"lifetime": "0"}, "spec.lifetime", "'0'"),
    Case("Token", {"username": "Alice_B"}, "spec.secretRef.name", "'x-jwt-Alice_B'"),
    Case("Token", {"secretRef": key("secret")}, "spec.secretRef.name", "'secret'"),
    Case("Token", {"secretRef": key("n", "a/b")}, "spec.secretRef.key", "'a/b'"),
    Case("Token", {"jwtKeyRef": key("t")}, "spec.jwtKeyRef", "'secret'", before={}),
    *(
        Case("Cluster", {"server": server}, "spec.server", named)
        for server, named in (
            ("", "URL"),
            ("r:6820", "https://"),
            ("ftp://r", "'ftp'"),
            ("http://r:6820/slurm", "path"),
            ("http://u:p@r", "token"),
        )
    ),
    Case("Cluster", {"token": {"secretRef": ""}}, "spec.token.secretRef", "Secret"),
    Case("Cluster", {"server": "nowhere"}, "spec.server", "http://", before={}),
]
