"""Room for what watches files: the kernel allows each user a number of inotify instances, 128 by default.

The daemons of a node take nine, a control plane a dozen, an editor of the same user some more; a kubelet that
gets none ends. The number is the machine's, and a namespace cannot have more. So it is raised when a box with
nodes starts on a machine where it is low. It is an upper bound that costs nothing unless it is used, and it
stays: another process may rely on it by now.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kubebox.slurm.packages import Progress

_SETTING = Path("/proc/sys/fs/inotify/max_user_instances")
# For a hundred nodes; what distributions with containers in mind set as well.
_ENOUGH = 8192
_LOW = 1024


def make_room(progress: Progress, setting: Path = _SETTING) -> None:
    """Raise the limit where it is low, or say how that is done."""
    try:
        limit = int(setting.read_text(encoding="ascii"))
        if limit >= _LOW:
            return
        setting.write_text(f"{_ENOUGH}\n", encoding="ascii")
    except OSError as error:
        progress(
            f"fs.inotify.max_user_instances cannot be raised ({error.strerror}): should a kubelet end with "
            f"'too many open files', have `sysctl fs.inotify.max_user_instances={_ENOUGH}` run on the machine"
        )
    else:
        progress(f"fs.inotify.max_user_instances raised from {limit} to {_ENOUGH}: each node takes nine")
