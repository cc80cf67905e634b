"""The upper bounds of what a manifest may ask for, and where each comes from.

The API server refuses what is beyond them, also through `kubectl scale`. They are far above what is useful: a
bound that a real installation meets is wrong. An object that was stored before a bound existed stays as it
is; see `docs/reference/limits.md`.
"""

from __future__ import annotations

from typing import Annotated, Final

from slurm_operator.api.markers import max_items, max_length, max_properties, maximum

# --- numbers

# The most nodes that one Slurm cluster can have (MAX_SLURM_NODES).
MAX_WORKERS: Final = 65_536
# Pods of a Deployment; all of them run on nodes that Slurm does not use.
MAX_PODS: Final = 4_096
# Each is an object in etcd with a copy of the pod template.
MAX_REVISIONS: Final = 1_000
# A DNS label has at most 63 characters, and the number is the end of a pod's host name.
MAX_DIGITS: Final = 63
MAX_PORT: Final = 65_535
# A year: what Slurm is told about nodes that it must not power down.
MAX_SECONDS: Final = 31_536_000
# Slurm keeps the timeouts of its power saving in 16 bits.
MAX_TIMEOUT: Final = 65_000

# --- characters

# An object's name, or a key of a Secret or ConfigMap.
MAX_NAME: Final = 253
MAX_LABEL_VALUE: Final = 63
# Annotations of one object together.
MAX_ANNOTATION: Final = 262_144
# One word or number: a duration, a quantity, a percentage, a flag.
MAX_WORD: Final = 256
# An address or a path.
MAX_ADDRESS: Final = 2_048
# One line of slurm.conf, or one argument of slurmd: Linux allows 128 KiB in one argument.
MAX_LINE: Final = 65_536
# A text that becomes part of a ConfigMap, which holds 1 MiB.
MAX_TEXT: Final = 524_288

# --- entries

# A pod cannot have more volumes than its node can attach, and no cloud attaches as many.
MAX_CLAIMS: Final = 128
MAX_REFERENCES: Final = 256
MAX_ENTRIES: Final = 256
MAX_LABELS: Final = 1_024

Name = Annotated[str, max_length(MAX_NAME)]
Word = Annotated[str, max_length(MAX_WORD)]
Address = Annotated[str, max_length(MAX_ADDRESS)]
Line = Annotated[str, max_length(MAX_LINE)]
Text = Annotated[str, max_length(MAX_TEXT)]
Port = Annotated[int, maximum(MAX_PORT)]
IntOrWord = Annotated[int | str, max_length(MAX_WORD)]
Labels = Annotated[dict[str, Annotated[str, max_length(MAX_LABEL_VALUE)]], max_properties(MAX_LABELS)]
Annotations = Annotated[dict[str, Annotated[str, max_length(MAX_ANNOTATION)]], max_properties(MAX_LABELS)]

ENTRIES: Final = max_items(MAX_ENTRIES)
REFERENCES: Final = max_items(MAX_REFERENCES)
CLAIMS: Final = max_items(MAX_CLAIMS)
