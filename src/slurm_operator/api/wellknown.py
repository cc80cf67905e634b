"""Every name of this operator that other programs, images, administrators and users depend on.

A label, annotation, finalizer, port, path, user or file name that leaves this process is part of the API:
running pods carry it, dashboards match it, images expect it. Each is defined only here, and none may
change between versions.
"""

from __future__ import annotations

from typing import Final

# -------------------------------------------------------------------------------------- group and prefixes
GROUP: Final = "slinky.slurm.net"
VERSION: Final = "v1beta1"
CLUSTER_VERSION: Final = "v1alpha1"

PREFIX: Final = f"{GROUP}/"
CONTROLLER_PREFIX: Final = f"controller.{PREFIX}"
NODESET_PREFIX: Final = f"nodeset.{PREFIX}"
LOGINSET_PREFIX: Final = f"loginset.{PREFIX}"
TOPOLOGY_PREFIX: Final = f"topology.{PREFIX}"
FEATURES_PREFIX: Final = f"features.{PREFIX}"

FIELD_MANAGER: Final = "slurm-operator"

# ------------------------------------------------------------------------------------- annotations on pods
ANNOTATION_POD_CORDON: Final = f"{NODESET_PREFIX}pod-cordon"
# Beside `pod-cordon`, and only there when the operator set that one: why it did. A cordon without it is a
# person's, and stays until that person takes it away.
ANNOTATION_POD_CORDON_BY: Final = f"{NODESET_PREFIX}pod-cordon-by"
# Beside a person's `pod-cordon`: why; it becomes the reason in Slurm. `kubectl slurm drain` sets it.
ANNOTATION_POD_CORDON_REASON: Final = f"{NODESET_PREFIX}pod-cordon-reason"
ANNOTATION_POD_DELETION_COST: Final = f"{NODESET_PREFIX}pod-deletion-cost"
ANNOTATION_POD_DEADLINE: Final = f"{NODESET_PREFIX}pod-deadline"
# A request to remove the pod: since when, and by whom; `api.removal` reads and writes it.
ANNOTATION_REMOVAL_REQUESTED: Final = f"{NODESET_PREFIX}removal-requested"
# "true" gives up the protection of one worker: whatever runs in it, it may be deleted and evicted at once.
ANNOTATION_ALLOW_DELETION: Final = f"{NODESET_PREFIX}allow-deletion"
# "true" on a pod whose slurmd was started with `-N NAME`, so that its name in Slurm is certain.
ANNOTATION_STATED_NAME: Final = f"{NODESET_PREFIX}stated-name"
# How many pods of this worker ended in a row before this one; see controllers/nodeset/decide/scale.py.
ANNOTATION_POD_FAILURES: Final = f"{NODESET_PREFIX}pod-failures"
ANNOTATION_DEFAULT_CONTAINER: Final = "kubectl.kubernetes.io/default-container"

ANNOTATION_SLURM_KEY_HASH: Final = f"{PREFIX}slurm-key-hash"
ANNOTATION_JWT_KEY_HASH: Final = f"{PREFIX}jwt-key-hash"
ANNOTATION_SLURM_CONFIG_HASH: Final = f"{PREFIX}slurm-config-hash"
# Of files that a spec refers to and that stand beside those that the operator writes.
ANNOTATION_REFERENCED_FILES_HASH: Final = f"{PREFIX}referenced-files-hash"
ANNOTATION_SLURMDBD_CONF_HASH: Final = f"{PREFIX}slurmdbd-conf-hash"
ANNOTATION_SSHD_CONF_HASH: Final = f"{PREFIX}sshd-conf-hash"
ANNOTATION_SSSD_CONF_HASH: Final = f"{PREFIX}sssd-conf-hash"
ANNOTATION_SSH_HOST_KEYS_HASH: Final = f"{PREFIX}ssh-host-keys-hash"

# ------------------------------------------------------------------------------------ annotations on nodes
ANNOTATION_NODE_CORDON_REASON: Final = f"{NODESET_PREFIX}node-cordon-reason"
ANNOTATION_NODE_HOSTNAME_OVERRIDE: Final = f"{NODESET_PREFIX}hostname-override"
ANNOTATION_NODE_FEATURES: Final = f"{FEATURES_PREFIX}spec"
# Set on nodes by administrators or by a cloud provider's tooling; copied to each worker pod scheduled there.
ANNOTATION_TOPOLOGY: Final = f"{TOPOLOGY_PREFIX}spec"

# -------------------------------------------------------------------------------- annotations on workloads
# A digest of the pod template that was rendered for a StatefulSet or Deployment; see objects/migration.py.
ANNOTATION_TEMPLATE_HASH: Final = f"{PREFIX}template-hash"

# -------------------------------------------------------------------------------- annotations on revisions
# A digest of the data that a ControllerRevision of Slinky slurm-operator stands for besides its own.
ANNOTATION_REVISION_STANDS_FOR: Final = f"{PREFIX}stands-for"

# ------------------------------------------------------------------------------------ annotations on kinds
# On a Controller: the Cluster whose slurmrestd and token are used instead of a RestApi of our own.
ANNOTATION_CLUSTER_REF: Final = f"{PREFIX}cluster-ref"
# On a Controller: "true" gives each job its own memory limit and keeps some memory of a worker for slurmd.
ANNOTATION_CONSTRAIN_MEMORY: Final = f"{PREFIX}constrain-memory"
# On a Controller or Accounting: "true" applies at once what differs from the configuration files of Slinky
# slurm-operator, with the restart that this needs; see objects/corrections.py.
ANNOTATION_APPLY_CORRECTIONS: Final = f"{PREFIX}apply-corrections"
# On a NodeSet: "true" lets its deletion take the pods without draining them first.
ANNOTATION_SKIP_DRAIN: Final = f"{NODESET_PREFIX}skip-drain"

# On a NodeSet: "true" says that the slurmctld of its Controller is external, and goes on without it.
ANNOTATION_EXTERNAL_SLURM: Final = f"{NODESET_PREFIX}external-slurm"

# ---------------------------------------------------------------------------------- annotations on Secrets
# Which of its keys is that of a Slurm cluster, if it is called neither slurm.key nor slurm.jwks: by this the
# API server knows, without asking anybody else, which changes to show to the webhook.
ANNOTATION_SLURM_KEY: Final = f"{PREFIX}slurm-key"

# -------------------------------------------------------------------------------------------------- labels
LABEL_APP_NAME: Final = "app.kubernetes.io/name"
LABEL_APP_INSTANCE: Final = "app.kubernetes.io/instance"
LABEL_APP_COMPONENT: Final = "app.kubernetes.io/component"
LABEL_APP_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
LABEL_APP_PART_OF: Final = "app.kubernetes.io/part-of"
# The values of the last two on whatever this operator makes.
OPERATOR: Final = "slurm-operator"
APPLICATION: Final = "slurm"
LABEL_CLUSTER: Final = f"{PREFIX}cluster"
LABEL_CONTROLLER_ACTIVE: Final = f"{CONTROLLER_PREFIX}active"
LABEL_POD_NAME: Final = f"{NODESET_PREFIX}pod-name"
LABEL_POD_INDEX: Final = f"{NODESET_PREFIX}pod-index"
LABEL_POD_HOSTNAME: Final = f"{NODESET_PREFIX}pod-hostname"
LABEL_POD_PROTECT: Final = f"{NODESET_PREFIX}pod-protect"
LABEL_SCALING_MODE: Final = f"{NODESET_PREFIX}scaling-mode"
# On every Secret that the operator made for a Token: what is watched instead of all Secrets of the cluster.
LABEL_TOKEN_SECRET: Final = f"{PREFIX}token-secret"
LABEL_REVISION_HASH: Final = "controller.kubernetes.io/hash"
# Written by Kubernetes on each pod of a StatefulSet: its name.
LABEL_STATEFUL_SET_POD: Final = "statefulset.kubernetes.io/pod-name"

TRUE: Final = "true"

# The values of `app.kubernetes.io/name`, which are also container and port names.
APP_SLURMCTLD: Final = "slurmctld"
APP_SLURMD: Final = "slurmd"
APP_SLURMDBD: Final = "slurmdbd"
APP_SLURMRESTD: Final = "slurmrestd"
APP_LOGIN: Final = "login"

COMPONENT_CONTROLLER: Final = "controller"
COMPONENT_WORKER: Final = "worker"
COMPONENT_ACCOUNTING: Final = "accounting"
COMPONENT_RESTAPI: Final = "restapi"
COMPONENT_LOGIN: Final = "login"

CONTAINER_RECONFIGURE: Final = "reconfigure"
CONTAINER_LOGFILE: Final = "logfile"
CONTAINER_INITCONF: Final = "initconf"

# -------------------------------------------------------------------------- finalizers, taints, conditions
FINALIZER_RESERVATION: Final = f"{NODESET_PREFIX}reservation"
# On a NodeSet: it is not gone before its nodes are drained and its pods deleted.
FINALIZER_DRAIN: Final = f"{NODESET_PREFIX}drain"

TAINT_WORKER: Final = f"{NODESET_PREFIX}worker"
TAINT_WORKER_EFFECT: Final = "NoExecute"

CONDITION_READY: Final = "Ready"
CONDITION_PROGRESSING: Final = "Progressing"
CONDITION_DEGRADED: Final = "Degraded"
# The word of kstatus for an object that will not become what it should be by waiting.
CONDITION_STALLED: Final = "Stalled"
# On what runs a daemon: what the last change of its configuration led to.
CONDITION_CONFIGURED: Final = "Configured"
# On a Controller: whether the operator reaches slurmctld through slurmrestd.
CONDITION_SLURM_API_READY: Final = "SlurmApiReady"
CONDITION_RESERVATION_CREATED: Final = "ReservationCreated"
# On a NodeSet that Slurm scales, or has scaled: what Slurm's power saving makes of its nodes.
CONDITION_AUTOSCALING: Final = "Autoscaling"

# On a pod pending removal: whether it may be deleted, and if not, what is being waited for.
POD_CONDITION_SAFE: Final = "SlurmSafeToDelete"
# Pod conditions that mirror the state of the Slurm node: the prefix and one of the states below.
POD_CONDITION_PREFIX: Final = "SlurmNodeState"
# A node has exactly one base state; the first of these that Slurm reports counts.
SLURM_BASE_STATES: Final = ("Allocated", "Down", "Error", "Future", "Idle", "Mixed", "Unknown")
SLURM_FLAG_STATES: Final = (
    "Completing",
    "Drain",
    "Fail",
    "Invalid",
    "InvalidReg",
    "Maintenance",
    "NotResponding",
    "Undrain",
)

# -------------------------------------------------------------------------------------- marks inside Slurm
# A drain whose reason starts with this was made by the operator, and only such a drain may the operator undo.
REASON_PREFIX: Final = "slurm-operator: "
FEATURE_PREFIX: Final = "k8s/"
RESERVATION_PREFIX: Final = "SlurmOperatorMaint-"
RESERVATION_USER: Final = "slurm"
RESERVATION_FLAGS: Final = ("IGNORE_JOBS", "MAINT")

# --------------------------------------------------------------------------------------------------- ports
PORT_SLURMCTLD: Final = 6817
PORT_SLURMD: Final = 6818
PORT_SLURMDBD: Final = 6819
PORT_SLURMRESTD: Final = 6820
PORT_SSH: Final = 22
PORT_DATABASE: Final = 3306

PATH_LIVEZ: Final = "/livez"
PATH_READYZ: Final = "/readyz"
METRICS_PATHS: Final = ("/metrics/jobs", "/metrics/nodes", "/metrics/partitions", "/metrics/scheduler")

# --------------------------------------------------------------------------------------------------- users
SLURM_USER: Final = "slurm"
SLURM_UID: Final = 401
SLURM_GID: Final = 401
SLURMD_USER: Final = "root"
# slurmrestd must run neither as root nor as the Slurm user.
SLURMRESTD_USER: Final = "nobody"
SLURMRESTD_UID: Final = 65534
SLURMRESTD_GID: Final = 65534

# ------------------------------------------------------------------------------------- paths in containers
DIR_SLURM_ETC: Final = "/etc/slurm"
# initconf reads the projected files from the first and leaves them, with owner and mode set, in the second.
DIR_SLURM_CONFIG: Final = "/mnt/slurm"
DIR_SLURM_ETC_INIT: Final = "/mnt/etc/slurm"
DIR_RUN: Final = "/run"
DIR_AUTHSOCKET: Final = "/run/slurmctld"
DIR_SACKD: Final = "/run/slurm"
DIR_SLURM_LOG: Final = "/var/log/slurm"
DIR_STATESAVE: Final = "/var/spool/slurmctld"
DIR_SLURMD_SPOOL: Final = "/var/spool/slurmd"
DIR_SSH: Final = "/etc/ssh"
PATH_SSSD_CONF: Final = "/etc/sssd/sssd.conf"
PATH_AUTHORIZED_KEYS: Final = "/root/.ssh/authorized_keys"

# ---------------------------------------------------------------------------------------------- file names
FILE_SLURM_KEY: Final = "slurm.key"
FILE_SLURM_JWKS: Final = "slurm.jwks"
FILE_JWT_KEY: Final = "jwt.key"
# The same in pods of Slinky 1.0.
FILE_JWT_HS256_KEY: Final = "jwt_hs256.key"
FILE_JWKS: Final = "jwks.json"
FILE_SLURM_CONF: Final = "slurm.conf"
FILE_CGROUP_CONF: Final = "cgroup.conf"
FILE_SLURMDBD_CONF: Final = "slurmdbd.conf"
FILE_SSHD_CONFIG: Final = "sshd_config"
FILE_AUTHORIZED_KEYS: Final = "authorized_keys"
FILE_SSSD_CONF: Final = "sssd.conf"
FILE_SLURMCTLD_LOG: Final = "slurmctld.log"
FILE_SLURMD_LOG: Final = "slurmd.log"
SSH_HOST_KEY_TYPES: Final = ("ecdsa", "ed25519", "rsa")

# -------------------------------------------------------------------------------------------- volume names
VOLUME_SLURM_ETC: Final = "slurm-etc"
VOLUME_SLURM_CONFIG: Final = "slurm-config"
VOLUME_RUN: Final = "run"
VOLUME_LOGFILE: Final = "slurm-logfile"
VOLUME_AUTHSOCKET: Final = "slurm-authsocket"
VOLUME_STATESAVE: Final = "statesave"
VOLUME_SACKD: Final = "sackd-dir"
VOLUME_SSH_CONFIG: Final = "ssh-config"
VOLUME_SSH_HOST_KEYS: Final = "ssh-host-keys"
VOLUME_SSSD_CONF: Final = "sssd-conf"

# -------------------------------------------------------------------------------------------------- tokens
JWT_ISSUER: Final = "slurm-operator"
JWT_DATA_KEY: Final = "SLURM_JWT"
# The v1alpha1 Cluster names only a Secret; the key inside it was fixed from the start.
CLUSTER_AUTH_DATA_KEY: Final = "auth-token"
# In the same Secret, optional: the certificate authority of an https server.
CLUSTER_CA_DATA_KEY: Final = "ca.crt"

# -------------------------------------------------------------------------------------------------- limits
# Slurm's own limit for ClusterName.
MAX_CLUSTER_NAME: Final = 40
# What an annotation of a Node or pod says longer than this is cut before it becomes the reason of a drain.
MAX_NODE_REASON: Final = 256

DEFAULT_CLUSTER_DOMAIN: Final = "cluster.local"
