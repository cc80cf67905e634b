"""What is refused of Controllers and Accountings."""

from __future__ import annotations

from tests.unit.webhook.cases import (
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
    Case("Controller", {"clusterName": "c" * 41}, "spec.clusterName", "41 characters"),
    Case("Controller", {}, "spec.clusterName", "Slurm allows 40", name="n" * 41),
    Case("Controller", {}, "metadata.name", "without dots", name="a.b"),
    Case("Controller", {"clusterName": "a b"}, "spec.clusterName", "contains ' '"),
    Case("Controller", {"clusterName": 'a"b'}, "spec.clusterName", "ends or quotes a value"),
    Case("Controller", {"slurmKeyRef": key("")}, "spec.slurmKeyRef.name", "name the Secret with slurm.key"),
    Case("Controller", {"slurmKeyRef": key("s", "")}, "spec.slurmKeyRef.key", "name the key"),
    Case("Controller", {"jwtKeyRef": key("")}, "spec.jwtKeyRef.name", "that signs tokens"),
    Case(
        "Controller",
        {"jwtKeyRef": DROP, "jwtHs256KeyRef": key("")},
        "spec.jwtHs256KeyRef.name",
        "that signs tokens",
    ),
    Case("Controller", {"jwksKeyRef": key("")}, "spec.jwksKeyRef.name", "name the ConfigMap"),
    Case("Controller", {"accountingRef": {"name": ""}}, "spec.accountingRef.name", "name the Accounting"),
    Case(
        "Controller",
        {"configFileRefs": [{"name": ""}]},
        "spec.configFileRefs[0].name",
        "name the ConfigMap",
    ),
    Case(
        "Controller",
        {"configFileRefs": [{"name": "files"}, {"name": "absent"}]},
        "spec.configFileRefs[1]",
        "ConfigMap 'absent' does not exist; create it",
        others=(config_map("files", "gres.conf"),),
    ),
    *(
        Case(
            "Controller",
            {"configFileRefs": [{"name": "files"}]},
            "spec.configFileRefs[0]",
            f"has a file {file}, which the operator writes",
            others=(config_map("files", file),),
        )
        for file in ("slurm.conf", "slurmdbd.conf")
    ),
    Case(
        "Controller",
        HA,
        "spec.persistence.existingClaim",
        "name one with ReadWriteMany",
        others=(claim("state", "ReadWriteOnce"),),
    ),
    Case("Controller", {**HA, "ha": {"enabled": True, "backups": 2**31 - 1}}, "spec.ha.backups", " 9"),
    Case("Controller", {"service.port": 70000}, "spec.service.port", "70000 is no port", crd="65535"),
    Case("Controller", {"service.nodePort": -1}, "spec.service.nodePort", "-1 is no port"),
    Case(
        "Controller",
        {"service.spec": {"ports": [{"name": "slurmctld", "port": 1}]}},
        "spec.service.port",
        "the name 'slurmctld' is taken",
    ),
    Case("Controller", {"service.spec": {"ports": "http"}}, "spec.service.spec.ports", "it must be a list"),
    Case(
        "Controller",
        {"external": True, "externalConfig": {"host": "h", "port": 0}},
        "spec.externalConfig.port",
        "0 is no port",
    ),
    Case(
        "Controller",
        {"external": True, "externalConfig": {"host": "h\nNodeName=x", "port": 1}},
        "spec.externalConfig.host",
        "it must be one line",
    ),
    Case(
        "Controller", {"extraConf": "ClusterName=other"}, "spec.extraConf", "and use spec.clusterName instead"
    ),
    Case("Controller", {"extraConf": "slurmctldport = 7000"}, "spec.extraConf", "sets slurmctldport"),
    Case(
        "Controller",
        {"extraConf": "SchedulerType=sched/backfill StateSaveLocation=/tmp"},
        "spec.extraConf",
        "sets StateSaveLocation",
    ),
    Case("Controller", {"extraConf": "Slurmctld\\\nHost=evil"}, "spec.extraConf", "sets SlurmctldHost"),
    Case("Controller", {"extraConf": "AuthType=auth/munge"}, "spec.extraConf", "sets AuthType"),
    Case("Controller", {"extraConf": "SlurmUser=root"}, "spec.extraConf", "sets SlurmUser"),
    Case("Controller", {"extraConf": "A=1\x01"}, "spec.extraConf", "control character"),
    Case(
        "Controller",
        {"extraConf": "AccountingStorageHost=x", "accountingRef": {"name": "a"}},
        "spec.extraConf",
        "the Accounting that spec.accountingRef names",
    ),
    Case(
        "Controller",
        {"template.spec": {"containers": twice("side")}},
        "spec.template.spec.containers[1].name",
        "'side' is the name of containers[0], too",
    ),
    Case(
        "Controller",
        {"template.spec": {"initContainers": [{"name": "slurmctld", **IMAGE}]}},
        "spec.template.spec.initContainers",
        "'slurmctld' is the name of another container",
    ),
    Case(
        "Controller",
        {"template.spec": {"containers": [{**IMAGE}]}},
        "spec.template.spec.containers[0]",
        "has no name",
    ),
    Case(
        "Controller",
        {"template.spec": {"containers": {}}},
        "spec.template.spec.containers",
        "it must be a list",
    ),
    Case(
        "Controller",
        {"template.spec": {"volumes": [{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}}]}},
        "spec.template.spec.volumes",
        "'v' is there 2 times",
    ),
    Case(
        "Controller",
        {"template.spec": {"tolerations": [{"key": 1}]}},
        "spec.template.spec.tolerations[0].key",
        "it must be a text, not a whole number",
    ),
    *(
        Case("Controller", {"extraConf": f"MaxNodeCount={text}"}, "spec.extraConf", "use at most 65536")
        for text in ("65537", "0x10001", "UNLIMITED", "-1", "many", '"70000"', "9" * 5000)
    ),
    Case("Controller", {"slurmctld": mount("nix")}, "spec.slurmctld.volumeMounts", "'nix' is no volume"),
    Case("Controller", {"logfile": {**IMAGE, "args": "x"}}, "spec.logfile.args", "it must be a list"),
]

CONTROLLER_UPDATES = [
    Case(
        "Controller",
        {"clusterName": "b"},
        "spec.clusterName",
        "it was 'a', keep that",
        before={"clusterName": "a"},
    ),
    Case("Controller", {"slurmKeyRef": key("t")}, "spec.slurmKeyRef", "it was 'secret'", before={}),
    *(
        Case(
            "Controller",
            {"slurmKeyRef": key("secret", "other")},
            "spec.slurmKeyRef.key",
            "its workers (such as pod 'worker') keep the old key while their jobs run",
            before={"slurmKeyRef": key("secret", before)},
            others=(worker("x"),),
        )
        for before in ("slurm.key", "slurm.jwks")
    ),
    Case(
        "Controller",
        {"jwtKeyRef": key("t")},
        "spec.jwtKeyRef",
        "Moving the same selector from jwtHs256KeyRef to jwtKeyRef is no change",
        before={},
    ),
    Case("Controller", {"jwtKeyRef": key("secret", "j")}, "spec.jwtKeyRef", "key 'k'", before={}),
    Case(
        "Controller",
        {"jwtKeyRef": key() | {"optional": True}},
        "spec.jwtKeyRef",
        "cannot be changed",
        before={},
    ),
    Case("Controller", {"persistence.enabled": False}, "spec.persistence.enabled", "it was true", before={}),
    Case(
        "Controller",
        {"persistence": {"enabled": True, "existingClaim": "b"}},
        "spec.persistence.existingClaim",
        "it was 'a'",
        before={"persistence": {"enabled": True, "existingClaim": "a"}},
    ),
    Case("Controller", {"extraConf": "AuthType=x"}, "spec.extraConf", "sets AuthType", before={}),
]

ACCOUNTING = [
    Case(
        "Accounting",
        {"slurmKeyRef": key("secret", "other")},
        "spec.slurmKeyRef.key",
        "which may be another one than that of Controller 'user', and cannot be replaced in one step",
        before={},
        others=(manifest("Controller", {"accountingRef": {"name": "x"}}, "user"), worker("user")),
    ),
    Case("Accounting", {"slurmKeyRef": key("")}, "spec.slurmKeyRef.name", "slurm.key"),
    Case("Accounting", {"jwtKeyRef": key("")}, "spec.jwtKeyRef.name", "that signs tokens"),
    Case(
        "Accounting",
        {"storageConfig.passwordKeyRef": key("")},
        "spec.storageConfig.passwordKeyRef.name",
        "the password of the database",
    ),
    Case("Accounting", {"storageConfig.host": ""}, "spec.storageConfig.host", "give it a value"),
    Case("Accounting", {"storageConfig.host": "a b"}, "spec.storageConfig.host", "contains ' '"),
    Case("Accounting", {"storageConfig.port": 0}, "spec.storageConfig.port", "0 is no port"),
    Case("Accounting", {"storageConfig.database": "a#b"}, "spec.storageConfig.database", "contains '#'"),
    Case(
        "Accounting", {"extraConf": "StoragePass=hunter2"}, "spec.extraConf", "storageConfig.passwordKeyRef"
    ),
    Case(
        "Accounting", {"extraConf": "storagehost=x"}, "spec.extraConf", "use spec.storageConfig.host instead"
    ),
    Case("Accounting", {"extraConf": "DbdPort=1"}, "spec.extraConf", "sets DbdPort"),
    Case("Accounting", {"slurmdbd": mount("nix")}, "spec.slurmdbd.volumeMounts", "'nix' is no volume"),
    Case(
        "Accounting",
        {"external": True, "externalConfig": {"host": "h h", "port": 1}},
        "spec.externalConfig.host",
        "contains ' '",
    ),
    Case(
        "Accounting",
        {"external": True, "externalConfig": {"host": "h", "port": -1}},
        "spec.externalConfig.port",
        "-1 is no port",
    ),
    Case("Accounting", {"slurmKeyRef": key("t")}, "spec.slurmKeyRef", "it was 'secret'", before={}),
    Case("Accounting", {"jwtKeyRef": key("t")}, "spec.jwtKeyRef", "cannot be changed", before={}),
]
