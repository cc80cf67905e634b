"""How slurmd is told who it is: its name in Slurm and the UID of its pod.

Without `-N`, slurmd registers under the hostname of its container, and that is not always what the pod asks
for: with `hostNetwork` it is the node's, with `setHostnameAsFQDN` a long one. So the name is an argument. The
last `-N` counts, and a user's arguments stand behind the operator's: a user's own `-N` is refused at
admission, and a pod that has one all the same does not carry the annotation that says whose name it has.

The name is also in the environment, for the script that runs before the container stops. On the network of
its node a numbered worker has the name of the node, which is known only once it runs there; Kubernetes then
fills it in.

The arguments of a container are words that the images' entrypoint joins and lets a shell read once more.
"""

from __future__ import annotations

import shlex
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from slurm_operator.api import wellknown
from slurm_operator.api.nodeset import ScalingMode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from slurm_operator.objects.slurmd_identity import WorkerIdentity

ENV_NODE_NAME: Final = "SLINKY_NODE_NAME"
ENV_POD_UID: Final = "SLINKY_POD_UID"

# Slurm 24.11 and 26.05 have the same short options; a colon says that an argument follows.
_SHORT: Final = "bcCd:Df:F::GhL:Mn:N:svVZ"
_LONG_WITH_ARGUMENT: Final = (
    "--authinfo",
    "--ca-cert-file",
    "--conf",
    "--conf-server",
    "--extra",
    "--instance-id",
    "--instance-type",
    "--parameters",
)


# Last in the list of the operator's own arguments.
ARGUMENTS: Final = ("-N", f"$({ENV_NODE_NAME})", "--instance-id", f"$({ENV_POD_UID})")
_FIELDS: Final = {ENV_NODE_NAME: "spec.nodeName", ENV_POD_UID: "metadata.uid"}


def identified(container: Mapping[str, Any], worker: WorkerIdentity, *, host_network: bool) -> dict[str, Any]:
    """Return the container slurmd of one worker; variables of these names are the operator's."""
    values = {name: _of_field(name, path) for name, path in _FIELDS.items()}
    arguments: list[Any] = list(container.get("args", ()))
    if not (host_network and worker.mode is ScalingMode.STATEFUL_SET):
        values[ENV_NODE_NAME] = {"name": ENV_NODE_NAME, "value": worker.hostname}
        where = arguments.index(ARGUMENTS[1]) if ARGUMENTS[1] in arguments else None
        if where is not None:
            arguments[where] = worker.hostname
    others = [item for item in container.get("env", ()) if item.get("name") not in values]
    return {**container, "args": arguments, "env": [*values.values(), *others]}


def states_name(container: Mapping[str, Any], worker: WorkerIdentity, *, host_network: bool) -> bool:
    """Return whether the last `-N` among the arguments is the operator's."""
    arguments: Iterable[Any] = container.get("args", ())
    if not (host_network and worker.mode is ScalingMode.STATEFUL_SET):
        # As in the template, which is the same for all workers of a NodeSet.
        arguments = (ARGUMENTS[1] if item == worker.hostname else item for item in arguments)
    return _last_name(tuple(map(str, arguments))) == ARGUMENTS[1]


def marks(container: Mapping[str, Any], worker: WorkerIdentity, *, host_network: bool) -> dict[str, str]:
    """Return the annotation of a pod whose slurmd is told its name by the operator."""
    stated = states_name(container, worker, host_network=host_network)
    return {wellknown.ANNOTATION_STATED_NAME: wellknown.TRUE} if stated else {}


def _of_field(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


# --------------------------------------------------------------------------------- reading slurmd's arguments


def named(arguments: Iterable[Any]) -> Iterator[str]:
    """Yield the node names that arguments give to slurmd, as its own parser would find them."""
    words = iter(_words(arguments))
    for word in words:
        if word == "--":
            return
        if word.startswith("--"):
            if "=" not in word and any(item.startswith(word) for item in _LONG_WITH_ARGUMENT):
                next(words, None)
        elif word.startswith("-"):
            option, value = _short(word[1:])
            if option and not value:
                value = next(words, "")
            if option == "N":
                yield value


@lru_cache(maxsize=64)
def _last_name(arguments: tuple[str, ...]) -> str | None:
    """Return the node name that slurmd takes; None if none is given."""
    return next(iter([*named(arguments)][-1:]), None)


def _short(letters: str) -> tuple[str, str]:
    """Return the option of a group that takes an argument, and what of the argument is in the same word."""
    for index, letter in enumerate(letters):
        if f"{letter}::" in _SHORT:
            return "", ""  # its argument is optional and in the same word
        if f"{letter}:" in _SHORT:
            return letter, letters[index + 1 :]
    return "", ""


def _words(arguments: Iterable[Any]) -> list[str]:
    text = " ".join(str(item) for item in arguments)
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
