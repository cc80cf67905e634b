"""The reasons of conditions and Events: one word each, for programs, alerts and the index in the docs.

A value is part of the API: it stays as it is, or changes with an entry in the changelog. `slurm/` may not
import this package; the reasons of its answers (`AnswerReason`) and the kinds of its errors are translated
where a controller reports them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Reason(StrEnum):
    """The reason of a condition or of an Event."""

    # What runs on a node cannot be determined.
    NO_CONNECTION = "NoConnection"
    NO_VIEW = "NoView"
    VIEW_STALE = "ViewStale"
    SLURM_UNREACHABLE = "SlurmUnreachable"
    SLURMCTLD_DOWN = "SlurmctldDown"
    TOKEN_REFUSED = "TokenRefused"  # noqa: S105 - a reason, no password
    SLURM_REFUSED = "SlurmRefused"
    REPLY_UNREADABLE = "ReplyUnreadable"
    REPLY_TOO_LARGE = "ReplyTooLarge"
    LIST_SUSPICIOUS = "ListSuspicious"
    CLUSTER_NAME_MISMATCH = "ClusterNameMismatch"
    NODE_MISSING = "NodeMissing"
    CONTROLLER_JUST_STARTED = "ControllerJustStarted"
    STATE_UNKNOWN = "StateUnknown"
    JOBS_UNKNOWN = "JobsUnknown"
    # The node is known, and work is or may come on it.
    DRAIN_PENDING = "DrainPending"
    JOBS_RUNNING = "JobsRunning"
    JOBS_COMPLETING = "JobsCompleting"
    NODE_FAILING = "NodeFailing"
    # The node is not in Slurm.
    NODE_ABSENT = "NodeAbsent"
    NEVER_REGISTERED = "NeverRegistered"
    LOST_WHILE_BUSY = "LostWhileBusy"
    # Something that the operator does not own is in the way.
    FOREIGN_DRAIN = "ForeignDrain"
    NAME_TAKEN = "NameTaken"
    CLAIM_CONFLICT = "ClaimConflict"
    BUDGET_MISSING = "BudgetMissing"
    CONTROLLER_GONE = "ControllerGone"
    # It will be done, but not yet.
    NOT_READY = "NotReady"
    BACKING_OFF = "BackingOff"
    CLAIMS_PENDING = "ClaimsPending"
    NAME_IN_USE = "NameInUse"
    MAX_UNAVAILABLE = "MaxUnavailable"
    CACHE_BEHIND = "CacheBehind"
    POWERING_UP = "PoweringUp"
    RECORD_PENDING = "RecordPending"
    RECORD_SHAPE = "RecordShapeUnknown"
    AUTOSCALING_UNSUPPORTED = "AutoscalingUnsupported"

    # Nothing is wrong (Degraded, Stalled), or a pod may be deleted (SlurmSafeToDelete).
    AS_EXPECTED = "AsExpected"
    SAFE = "Safe"
    # Ready and Progressing of a NodeSet.
    ALL_AVAILABLE = "AllAvailable"
    WORKERS_UNAVAILABLE = "WorkersUnavailable"
    UPDATING = "Updating"
    REMOVING = "Removing"
    DELETING = "Deleting"
    WORKING = "Working"
    PODS_STARTING = "PodsStarting"
    SETTLED = "Settled"
    # Autoscaling of a NodeSet.
    ACTIVE = "Active"
    RESUMING = "Resuming"
    LEAVING = "Leaving"
    # ReservationCreated of a NodeSet, in the words of the Slinky slurm-operator.
    RESERVATION_CREATED = "Created"
    RESERVATION_NOT_EXISTS = "NotExists"
    # Degraded of a NodeSet.
    NODES_DOWN = "NodesDown"
    NODES_REFUSED = "NodesRefused"
    PODS_FAILED = "PodsFailed"
    PODS_LEFT = "PodsLeft"
    RESERVATION_FAILED = "ReservationFailed"
    SLURM_WRITE_FAILED = "SlurmWriteFailed"
    SLURM_WRITE_HELD = "SlurmWriteHeld"

    # Problems of any kind; NAME_TAKEN, too: an object of another owner has the name of a child.
    REFERENCE_UNREADABLE = "ReferenceUnreadable"
    """It cannot be determined what a referenced object contains; everything stays as it is."""
    MISSING_REFERENCE = "MissingReference"
    INVALID_SPEC = "InvalidSpec"
    IMMUTABLE_FIELD = "ImmutableField"
    APPLY_FAILED = "ApplyFailed"
    """The API server refused an object."""
    ROLLOUT_STALLED = "RolloutStalled"
    PODS_FAILING = "PodsFailing"
    """Pods cannot be placed, or their containers do not start or do not stay up."""

    # Ready of a Token.
    ISSUED = "Issued"
    KEY_MISSING = "KeyMissing"
    KEY_INVALID = "KeyInvalid"
    KEY_UNREADABLE = "KeyUnreadable"
    KEY_ROTATED = "KeyRotated"
    EXPIRED = "Expired"
    SECRET_CONFLICT = "SecretConflict"  # noqa: S105 - a reason, no password
    SECRET_OUTDATED = "SecretOutdated"  # noqa: S105 - a reason, no password
    SECRET_TERMINATING = "SecretTerminating"  # noqa: S105 - a reason, no password
    SECRET_WRITE_FAILED = "SecretWriteFailed"  # noqa: S105 - a reason, no password

    # Events on a NodeSet; those that the Slinky slurm-operator records too have its words.
    SCALING_UP = "ScalingUp"
    SCALING_DOWN = "ScalingDown"
    POWERING_DOWN = "PoweringDown"
    RESUME_FAILED = "ResumeFailed"
    ROLLING_UPDATE = "RollingUpdate"
    SCHEDULED_UPDATE = "Scheduled Update"
    NODE_CORDON = "NodeCordon"
    REMOVAL_REQUESTED = "RemovalRequested"
    HOSTNAME_MISMATCH = "HostnameMismatch"
    SUCCEEDED_DAEMON_POD = "SucceededDaemonPod"
    FAILED_DAEMON_POD = "FailedDaemonPod"
    SLURM_NODE_NOT_REGISTERED = "SlurmNodeNotRegistered"
    DEFUNCT_SLURM_NODE_PRUNED = "DefunctSlurmNodePruned"
    CONFLICTING_CONTROLLER = "ConflictingController"
    SUCCESSFUL_CREATE = "SuccessfulCreate"
    FAILED_CREATE = "FailedCreate"
    SUCCESSFUL_DELETE = "SuccessfulDelete"
    FAILED_DELETE = "FailedDelete"
    CREATE_SUCCEEDED = "CreateSucceeded"
    DELETE_SUCCEEDED = "DeleteSucceeded"
    SYNC_FAILED = "SyncFailed"
    SYNC_FINALIZER_FAILED = "SyncFinalizerFailed"
    CONTROLLER_REF_FAILED = "ControllerRefFailed"


_UP_TO_BLOCKING: Final = [*Reason].index(Reason.AUTOSCALING_UNSUPPORTED) + 1
BLOCKING: Final = frozenset([*Reason][:_UP_TO_BLOCKING])
"""What an action on a worker can wait for: the reasons of `Defer`, above those of whole objects."""
