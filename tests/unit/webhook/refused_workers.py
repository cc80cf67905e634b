"""What is refused of NodeSets, LoginSets, RestApis, Tokens and Clusters."""

from __future__ import annotations

from tests.unit.webhook.cases import IMAGE, MAX, TOO_LONG, WINDOW, Case, key, manifest, mount, template, twice

NODE_SET = [
    Case("NodeSet", {"controllerRef": {"name": ""}}, "spec.controllerRef.name", "name the Controller"),
    *(Case("NodeSet", {MAX: value}, f"spec.{MAX}", "would never let an update go on") for value in (0, -1)),
    *(
        Case("NodeSet", {MAX: text}, f"spec.{MAX}", "would never let an update go on")
        for text in ("0%", "00%")
    ),
    *(
        Case("NodeSet", {MAX: text}, f"spec.{MAX}", "neither a number nor a percentage")
        for text in ("-5%", "+0%", "5", "half", "", "5 %", "\u0665%", "0.0%", "1e1%")
    ),
    *(
        Case("NodeSet", {"slurmd": IMAGE | {part: words}}, f"spec.slurmd.{part}", "-N names the Slurm node")
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
        "use at least 1m",
    ),
    Case(
        "NodeSet",
        WINDOW | {"updateStrategy.scheduledUpdate.duration": "0"},
        "spec.updateStrategy.scheduledUpdate.duration",
        "use at least 1m",
    ),
    Case(
        "NodeSet",
        {"updateStrategy.scheduledUpdate.duration": "-1h"},
        "spec.updateStrategy.scheduledUpdate.duration",
        "use at least 1m",
    ),
    Case(
        "NodeSet",
        {"ssh": {"enabled": True, "sssdConfRef": key("")}},
        "spec.ssh.sssdConfRef.name",
        "sssd.conf",
    ),
    *(
        Case("NodeSet", {"template.spec": {"hostname": name}}, "spec.template.spec.hostname", words)
        for name, words in (
            ("-gpu", "cannot begin a hostname"),
            ("GPU-", "cannot begin a hostname"),
            ("gpu.a-", "cannot begin a hostname"),
            ("g" * 63, "must consist of at most 63"),
            (7, "it must be a text, not a whole number"),
        )
    ),
    *(
        Case(
            "NodeSet",
            {"template.spec": {"hostname": prefix}, "replicas": replicas},
            "spec.template.spec.hostname",
            f"the NodeSet 'y' has a worker {name!r}, too",
            others=(manifest("NodeSet", {"template.spec": {"hostname": "gpu-"}, "replicas": 20}, "y"),),
            before=before,
        )
        for prefix, replicas, name, before in (
            ("gpu-", 1, "gpu-0", None),
            ("gpu-1", 1, "gpu-10", None),
            ("gpu-", 1, "gpu-0", {"template.spec": {"hostname": "cpu-"}}),
        )
    ),
    Case("NodeSet", {}, "metadata.name", "workers would have the hostname", name=TOO_LONG),
    Case("NodeSet", {"extraConf": "Weight=1 gpu"}, "spec.extraConf", "'gpu' is not of the form Option=value"),
    Case("NodeSet", {"extraConf": "Weight='1"}, "spec.extraConf", "has a single quote"),
    Case("NodeSet", {"extraConf": "NodeName=x"}, "spec.extraConf", "sets NodeName"),
    Case("NodeSet", {"extraConf": "nodeaddr=10.0.0.1"}, "spec.extraConf", "its own address"),
    *(
        Case("NodeSet", {"partition": {"enabled": True, "config": text}}, "spec.partition.config", words)
        for text, words in (
            ("Default=YES PartitionName=x", "sets PartitionName"),
            ("nodename=x", "sets nodename"),
            ("Nodes=ALL", "exactly the nodes of this NodeSet"),
            ("NodeSet = x", "another set of nodes"),
            ("Default=YES # State=DOWN", "makes a comment"),
            ("Default", "'Default' is not of the form Option=value"),
            ("MaxTime=1\rMaxNodes=2", "it must be one line"),
            ("MaxTime=1\\", "ends with a backslash"),
        )
    ),
    Case("NodeSet", {"ordinalPadding": 10}, "spec.ordinalPadding", "use at most 9"),
    Case("NodeSet", {"ordinalPadding": 2**31 - 1}, "spec.ordinalPadding", "use at most 9", crd="63"),
    *(
        Case("NodeSet", {name: -1}, f"spec.{name}", "use 0 or more")
        for name in ("minReadySeconds", "revisionHistoryLimit")
    ),
    Case(
        "NodeSet",
        {"volumeClaimTemplates": [template("scratch")]},
        "spec.volumeClaimTemplates[0]",
        "'scratch' is mounted nowhere",
    ),
    Case(
        "NodeSet",
        {"volumeClaimTemplates": [{"metadata": {}}]},
        "spec.volumeClaimTemplates[0].metadata.name",
        "a volume is mounted by this name",
    ),
    Case(
        "NodeSet",
        {"volumeClaimTemplates": [template("a"), template("a")], "slurmd": mount("a")},
        "spec.volumeClaimTemplates",
        "give each its own",
    ),
    Case("NodeSet", {"slurmd": mount("nix")}, "spec.slurmd.volumeMounts", "'nix' is no volume"),
    Case(
        "NodeSet",
        {"template.spec": {"containers": twice("side")}},
        "spec.template.spec.containers[1].name",
        "give each container a name of its own",
    ),
    Case(
        "NodeSet",
        {"slurmd": {**IMAGE, "resources": {"limits": {"cpu": "many"}}}},
        "spec.slurmd.resources.limits.cpu",
        "'many' is no quantity",
    ),
    Case(
        "NodeSet",
        {"template.spec": {"nodeSelector": {"a": 1}}},
        "spec.template.spec.nodeSelector[...]",
        "it must be a text, not a whole number",
    ),
    Case(
        "NodeSet",
        {"controllerRef": {"name": "d"}},
        "spec.controllerRef",
        "it was name 'c', keep that",
        before={},
        crd="controllerRef cannot be changed",
    ),
    Case(
        "NodeSet",
        {"volumeClaimTemplates": [template("b")], "slurmd": mount("b")},
        "spec.volumeClaimTemplates",
        "cannot be changed",
        before={"volumeClaimTemplates": [template("a")], "slurmd": mount("a")},
    ),
    Case("NodeSet", {MAX: "0%"}, f"spec.{MAX}", "would never", before={}),
]

LOGIN_SET = [
    Case("LoginSet", {"controllerRef": {"name": ""}}, "spec.controllerRef.name", "name the Controller"),
    Case("LoginSet", {"sssdConfRef": key("")}, "spec.sssdConfRef.name", "name the Secret with sssd.conf"),
    Case("LoginSet", {}, "metadata.name", "its Service would be called", name="n" * 64),
    Case("LoginSet", {"login": mount("nix")}, "spec.login.volumeMounts", "'nix' is no volume"),
    Case("LoginSet", {"login": {**IMAGE, "ports": 22}}, "spec.login.ports", "it must be a list"),
    Case("LoginSet", {"service.port": 99999}, "spec.service.port", "no port", crd="65535"),
    Case(
        "LoginSet",
        {"template.spec": {"initContainers": [{"name": "login", **IMAGE}]}},
        "spec.template.spec.initContainers",
        "choose another one",
    ),
    Case("LoginSet", {"controllerRef": {"name": "d"}}, "spec.controllerRef", "cannot be changed", before={}),
]

OTHERS = [
    Case("RestApi", {"controllerRef": {"name": ""}}, "spec.controllerRef.name", "name the Controller"),
    Case("RestApi", {"replicas": -2}, "spec.replicas", "use 0 or more"),
    Case("RestApi", {"slurmrestd": mount("nix")}, "spec.slurmrestd.volumeMounts", "'nix' is no volume"),
    Case("RestApi", {}, "metadata.name", "without dots", name="a.b"),
    Case(
        "RestApi",
        {"template.spec": {"containers": twice("a")}},
        "spec.template.spec.containers[1].name",
        "of its own",
    ),
    Case("Token", {"jwtKeyRef": key("")}, "spec.jwtKeyRef", "name the Secret"),
    Case("Token", {"lifetime": "0"}, "spec.lifetime", "is no time at all"),
    Case("Token", {"username": "Alice_B"}, "spec.secretRef.name", "cannot be the name of a Secret"),
    Case("Token", {"secretRef": key("secret")}, "spec.secretRef.name", "is the Secret with the JWT key"),
    Case("Token", {"secretRef": key("n", "a/b")}, "spec.secretRef.key", "cannot be a key in a Secret"),
    Case("Token", {"jwtKeyRef": key("t")}, "spec.jwtKeyRef", "cannot be changed", before={}),
    *(
        Case("Cluster", {"server": server}, "spec.server", words)
        for server, words in (
            ("", "is empty"),
            ("r:6820", "no http:// or https://"),
            ("ftp://r", "not http or https"),
            ("http://r:6820/slurm", "has a path"),
            ("http://u:p@r", "wants a token instead"),
        )
    ),
    Case("Cluster", {"token": {"secretRef": ""}}, "spec.token.secretRef", "name the Secret"),
    Case("Cluster", {"server": "nowhere"}, "spec.server", "no http://", before={}),
]
