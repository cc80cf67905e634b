"""What is refused of Controllers and Accountings."""

from __future__ import annotations

from tests.support.webhook.rule_cases import (
    DROP,
    HA,
    IMAGE,
    Case,
    claim,
    config_map,
    key,
    manifest,
    mount,
    twice,
    worker,
)

CONTROLLER = [
    Case("Controller", {"clusterName": "c" * 41}, "spec.clusterName", "41"),
    Case("Controller", {}, "spec.clusterName", "40", name="n" * 41),
    Case("Controller", {}, "metadata.name", "'a.b-controller-internal'", name="a.b"),
    Case("Controller", {"clusterName": "a b"}, "spec.clusterName", "' '"),
    Case("Controller", {"clusterName": 'a"b'}, "spec.clusterName", "'\"'"),
    Case("Controller", {"slurmKeyRef": key("")}, "spec.slurmKeyRef.name", "slurm.key"),
    Case("Controller", {"slurmKeyRef": key("s", "")}, "spec.slurmKeyRef.key", "slurm.key"),
    Case("Controller", {"jwtKeyRef": key("")}, "spec.jwtKeyRef.name", "Secret"),
    Case(
        "Controller",
        {"jwtKeyRef": DROP, "jwtHs256KeyRef": key("")},
        "spec.jwtHs256KeyRef.name",
        "Secret",
    ),
    Case("Controller", {"jwksKeyRef": key("")}, "spec.jwksKeyRef.name", "ConfigMap"),
    Case("Controller", {"accountingRef": {"name": ""}}, "spec.accountingRef.name", "Accounting"),
    Case(
        "Controller",
        {"configFileRefs": [{"name": ""}]},
        "spec.configFileRefs[0].name",
        "ConfigMap",
    ),
    Case(
        "Controller",
        {"configFileRefs": [{"name": "files"}, {"name": "absent"}]},
        "spec.configFileRefs[1]",
        "ConfigMap 'absent'",
        others=(config_map("files", "gres.conf"),),
    ),
    *(
        Case(
            "Controller",
            {"configFileRefs": [{"name": "files"}]},
            "spec.configFileRefs[0]",
            f" {file}",
            others=(config_map("files", file),),
        )
        for file in ("slurm.conf", "slurmdbd.conf")
    ),
    Case(
        "Controller",
        HA,
        "spec.persistence.existingClaim",
        "ReadWriteMany",
        others=(claim("state", "ReadWriteOnce"),),
    ),
    Case(
        "Controller", {**HA, "ha": {"enabled": True, "backups": 2**31 - 1}}, "spec.ha.backups", " 9", crd=" 9"
    ),
    Case("Controller", {"service.port": 70000}, "spec.service.port", "70000", crd="65535"),
    Case("Controller", {"service.nodePort": -1}, "spec.service.nodePort", "-1"),
    Case(
        "Controller",
        {"service.spec": {"ports": [{"name": "slurmctld", "port": 1}]}},
        "spec.service.port",
        "'slurmctld'",
    ),
    Case("Controller", {"service.spec": {"ports": "http"}}, "spec.service.spec.ports", "a list"),
    Case(
        "Controller",
        {"external": True, "externalConfig": {"host": "h", "port": 0}},
        "spec.externalConfig.port",
        ": 0 ",
    ),
    Case(
        "Controller",
        {"external": True, "externalConfig": {"host": "h\nNodeName=x", "port": 1}},
        "spec.externalConfig.host",
        "SlurmctldHost",
    ),
    Case("Controller", {"extraConf": "ClusterName=other"}, "spec.extraConf", "spec.clusterName"),
    Case("Controller", {"extraConf": "slurmctldport = 7000"}, "spec.extraConf", "slurmctldport"),
    Case(
        "Controller",
        {"extraConf": "SchedulerType=sched/backfill StateSaveLocation=/tmp"},
        "spec.extraConf",
        "StateSaveLocation",
    ),
    Case("Controller", {"extraConf": "Slurmctld\\\nHost=evil"}, "spec.extraConf", "SlurmctldHost"),
    Case("Controller", {"extraConf": "AuthType=auth/munge"}, "spec.extraConf", "AuthType"),
    Case("Controller", {"extraConf": "SlurmUser=root"}, "spec.extraConf", "SlurmUser"),
    Case("Controller", {"extraConf": "A=1\x01"}, "spec.extraConf", "control character"),
    Case(
        "Controller",
        {"extraConf": "AccountingStorageHost=x", "accountingRef": {"name": "a"}},
        "spec.extraConf",
        "spec.accountingRef",
    ),
    Case(
        "Controller",
        {"template.spec": {"containers": twice("side")}},
        "spec.template.spec.containers[1].name",
        "containers[0]",
    ),
    Case(
        "Controller",
        {"template.spec": {"initContainers": [{"name": "slurmctld", **IMAGE}]}},
        "spec.template.spec.initContainers",
        "'slurmctld'",
    ),
    Case(
        "Controller",
        {"template.spec": {"containers": [{**IMAGE}]}},
        "spec.template.spec.containers[0]",
        "name",
    ),
    Case(
        "Controller",
        {"template.spec": {"containers": {}}},
        "spec.template.spec.containers",
        "a list",
    ),
    Case(
        "Controller",
        {"template.spec": {"volumes": [{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}}]}},
        "spec.template.spec.volumes",
        "'v'",
    ),
    Case(
        "Controller",
        {"template.spec": {"tolerations": [{"key": 1}]}},
        "spec.template.spec.tolerations[0].key",
        "a string",
    ),
    *(
        Case("Controller", {"extraConf": f"MaxNodeCount={text}"}, "spec.extraConf", "65536")
        for text in ("65537", "0x10001", "UNLIMITED", "-1", "many", '"70000"', "9" * 5000)
    ),
    Case("Controller", {"slurmctld": mount("nix")}, "spec.slurmctld.volumeMounts", "'nix'"),
    Case("Controller", {"logfile": {**IMAGE, "args": "x"}}, "spec.logfile.args", "a list"),
]

CONTROLLER_UPDATES = [
    Case(
        "Controller",
        {"clusterName": "b"},
        "spec.clusterName",
        "'a'",
        before={"clusterName": "a"},
    ),
    Case("Controller", {"slurmKeyRef": key("t")}, "spec.slurmKeyRef", "'secret'", before={}),
    *(
        Case(
            "Controller",
            {"slurmKeyRef": key("secret", "other")},
            "spec.slurmKeyRef.key",
            "pod 'worker'",
            before={"slurmKeyRef": key("secret", before)},
            others=(worker("x"),),
        )
        for before in ("slurm.key", "slurm.jwks")
    ),
    Case(
        "Controller",
        {"jwtKeyRef": key("t")},
        "spec.jwtKeyRef",
        "jwtHs256KeyRef",
        before={},
    ),
    Case("Controller", {"jwtKeyRef": key("secret", "j")}, "spec.jwtKeyRef", "key 'k'", before={}),
    Case(
        "Controller",
        {"jwtKeyRef": key() | {"optional": True}},
        "spec.jwtKeyRef",
        "'secret'",
        before={},
    ),
    Case("Controller", {"persistence.enabled": False}, "spec.persistence.enabled", "true", before={}),
    Case(
        "Controller",
        {"persistence": {"enabled": True, "existingClaim": "b"}},
        "spec.persistence.existingClaim",
        "'a'",
        before={"persistence": {"enabled": True, "existingClaim": "a"}},
    ),
    Case("Controller", {"extraConf": "AuthType=x"}, "spec.extraConf", "AuthType", before={}),
]

ACCOUNTING = [
    Case(
        "Accounting",
        {"slurmKeyRef": key("secret", "other")},
        "spec.slurmKeyRef.key",
        "Controller 'user'",
        before={},
        others=(manifest("Controller", {"accountingRef": {"name": "x"}}, "user"), worker("user")),
    ),
    Case("Accounting", {"slurmKeyRef": key("")}, "spec.slurmKeyRef.name", "slurm.key"),
    Case("Accounting", {"jwtKeyRef": key("")}, "spec.jwtKeyRef.name", "Secret"),
    Case(
        "Accounting",
        {"storageConfig.passwordKeyRef": key("")},
        "spec.storageConfig.passwordKeyRef.name",
        "password",
    ),
    Case("Accounting", {"storageConfig.host": ""}, "spec.storageConfig.host", "StorageHost"),
    Case("Accounting", {"storageConfig.host": "a b"}, "spec.storageConfig.host", "' '"),
    Case("Accounting", {"storageConfig.port": 0}, "spec.storageConfig.port", ": 0 "),
    Case("Accounting", {"storageConfig.database": "a#b"}, "spec.storageConfig.database", "'#'"),
    Case(
        "Accounting", {"extraConf": "StoragePass=hunter2"}, "spec.extraConf", "storageConfig.passwordKeyRef"
    ),
    Case("Accounting", {"extraConf": "storagehost=x"}, "spec.extraConf", "spec.storageConfig.host"),
    Case("Accounting", {"extraConf": "DbdPort=1"}, "spec.extraConf", "DbdPort"),
    Case("Accounting", {"slurmdbd": mount("nix")}, "spec.slurmdbd.volumeMounts", "'nix'"),
    Case(
        "Accounting",
        {"external": True, "externalConfig": {"host": "h h", "port": 1}},
        "spec.externalConfig.host",
        "' '",
    ),
    Case(
        "Accounting",
        {"external": True, "externalConfig": {"host": "h", "port": -1}},
        "spec.externalConfig.port",
        "-1",
    ),
    Case("Accounting", {"slurmKeyRef": key("t")}, "spec.slurmKeyRef", "'secret'", before={}),
    Case("Accounting", {"jwtKeyRef": key("t")}, "spec.jwtKeyRef", "'secret'", before={}),
]
