"""Shell completion.

kubectl (1.26 and newer) completes a plugin by running `kubectl_complete-slurm` with the words after
`kubectl slurm`, the last of them the one to complete; it reads one candidate a line and a directive at the
end. The scripts for `kubectl-slurm` itself run the same program. Names of objects are asked of the API server
for two seconds at most; if that fails, none are offered.
"""

from __future__ import annotations

import contextlib
import re
import sys
from typing import TYPE_CHECKING, Final

from slurm_operator.plugin.arguments import COMMANDS, COMMON_FLAGS, HISTORY_KINDS, KINDS, OUTPUTS, SHELLS

if TYPE_CHECKING:
    from collections.abc import Sequence

_COMPLETER: Final = "kubectl_complete-slurm"
# kubectl's directive: offer no file names.
_NO_FILES: Final = ":4"
_SECONDS: Final = 2.0
# Flags of each command besides the common ones; True: a value follows.
_FLAGS: Final[dict[str, dict[str, bool]]] = {
    "status": {"--watch": False, "--output": True},
    "nodes": {"--watch": False, "--output": True, "--blocked": False},
    "jobs": {
        "--watch": False,
        "--output": True,
        "--user": True,
        "--state": True,
        "--partition": True,
        "--node": True,
    },
    "explain": {"--output": True},
    "history": {"--output": True},
    "drain": {"--reason": True},
    "undrain": {"--force": False},
    "doctor": {"--output": True},
    "dashboard": {"--port": True, "--no-browser": False},
    "completion": {},
    "version": {},
}
_VALUES: Final = {
    "--output": OUTPUTS,
    "-o": OUTPUTS,
    "--state": ("PENDING", "RUNNING", "COMPLETING", "SUSPENDED", "COMPLETED", "FAILED", "CANCELLED"),
}
_NAME: Final = re.compile(r"[a-z0-9.-]+")
_SHORT_WITH_VALUE: Final = ("-n", "-o")
_RESOURCES: Final = {
    "pod": ("v1", "pods", "app.kubernetes.io/name=slurmd"),
    "nodeset": ("slinky.slurm.net/v1beta1", "nodesets", ""),
    "cluster": ("slinky.slurm.net/v1beta1", "controllers", ""),
}


def candidates(words: Sequence[str]) -> tuple[list[str], str]:
    """Return the words that fit the last one, and the kind of object whose names fit as well."""
    *before, current = words or [""]
    if before and (before[-1] in _VALUES):
        return _starting(_VALUES[before[-1]], current), ""
    plain = _plain(before)
    if not plain:
        return _starting([*COMMANDS] if not current.startswith("-") else [*COMMON_FLAGS], current), ""
    command, *given = plain
    if current.startswith("-"):
        return _starting([*_FLAGS.get(command, {}), *COMMON_FLAGS], current), ""
    if before[-1] in _SHORT_WITH_VALUE or _takes_value(command, before[-1]):
        return [], ""
    return _arguments(command, given, current)


def _arguments(command: str, given: list[str], current: str) -> tuple[list[str], str]:
    if command == "completion" and not given:
        return _starting(SHELLS, current), ""
    if command in ("explain", "history"):
        kinds = (
            KINDS if command == "explain" else {key.lower(): words for key, words in HISTORY_KINDS.items()}
        )
        if not given:
            return _starting([*kinds], current), ""
        wanted = next((kind for kind, words in kinds.items() if given[0] in words), "")
        resource = {"node": "pod", "controller": "cluster"}.get(wanted, wanted)
        return [], resource if len(given) == 1 and resource in _RESOURCES else ""
    objects = {"status": "cluster", "jobs": "cluster", "nodes": "nodeset", "drain": "pod", "undrain": "pod"}
    return [], objects.get(command, "") if not given else ""


def _plain(words: Sequence[str]) -> list[str]:
    """Return the words that are no flags, nor values of flags."""
    found: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word.startswith("-"):
            skip = "=" not in word and (
                word in _SHORT_WITH_VALUE or _takes_value(found[0] if found else "", word)
            )
        else:
            found.append(word)
    return found


def _takes_value(command: str, flag: str) -> bool:
    return bool(COMMON_FLAGS.get(flag)) or _FLAGS.get(command, {}).get(flag, False)


def _starting(known: Sequence[str], current: str) -> list[str]:
    return [word for word in known if word.startswith(current)]


def _value(words: Sequence[str], *flags: str) -> str:
    """Return the value that a flag has on the command line; empty without it."""
    for index, word in enumerate(words):
        name, sign, value = word.partition("=")
        if name in flags:
            return value if sign else next(iter(words[index + 1 : index + 2]), "")
    return ""


def script(shell: str) -> str:
    """Return the script that teaches a shell to complete `kubectl-slurm`."""
    return {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}[shell]


def main() -> int:
    """Print what completes the words that were given."""
    words = sys.argv[1:]
    found, kind = candidates(words)
    if kind:
        # Whatever is wrong, a shell that completes must not print errors into the line being typed.
        with contextlib.suppress(Exception):
            found += _names(words, kind)
    sys.stdout.write("".join(f"{one}\n" for one in found) + f"{_NO_FILES}\n")
    return 0


def _names(words: Sequence[str], kind: str) -> list[str]:
    import asyncio  # noqa: PLC0415 - only where names are asked for

    return asyncio.run(asyncio.wait_for(_ask(words, kind), _SECONDS))


async def _ask(words: Sequence[str], kind: str) -> list[str]:
    import msgspec  # noqa: PLC0415 - only where names are asked for

    from slurm_operator.kube.client.client import Client  # noqa: PLC0415 - only where names are asked for
    from slurm_operator.kube.client.config import load_config  # noqa: PLC0415 - only where names are asked for

    config = load_config(_value(words, "--kubeconfig") or None, _value(words, "--context") or None)
    version, plural, selector = _RESOURCES[kind]
    everywhere = "-A" in words or "--all-namespaces" in words
    space = "" if everywhere else f"/namespaces/{_value(words, '-n', '--namespace') or config.namespace}"
    path = f"/{'apis' if '/' in version else 'api'}/{version}{space}/{plural}"
    async with Client(config, timeout=_SECONDS) as client:
        reply = await client.raw("GET", path, query={"labelSelector": selector} if selector else None)
    names = [one["metadata"]["name"] for one in msgspec.json.decode(reply)["items"]]
    # bash expands the words that it is offered, and would run what a server sends as a name.
    names = [name for name in names if _NAME.fullmatch(name)]
    return sorted(_starting(names, words[-1] if words else ""))


_BASH: Final = f"""# bash completion of kubectl-slurm: source <(kubectl slurm completion bash)
_kubectl_slurm() {{
  local out
  out=$({_COMPLETER} "${{COMP_WORDS[@]:1:COMP_CWORD}}" 2>/dev/null | sed '/^:[0-9]*$/d')
  mapfile -t COMPREPLY < <(compgen -W "$out" -- "${{COMP_WORDS[COMP_CWORD]}}")
}}
complete -F _kubectl_slurm kubectl-slurm
"""
_ZSH: Final = f"""#compdef kubectl-slurm
# zsh completion of kubectl-slurm: source <(kubectl slurm completion zsh)
_kubectl_slurm() {{
  local -a out
  out=(${{(f)"$({_COMPLETER} "${{(@)words[2,CURRENT]}}" 2>/dev/null | sed '/^:[0-9]*$/d')"}})
  compadd -a out
}}
compdef _kubectl_slurm kubectl-slurm
"""
_FISH: Final = f"""# fish completion of kubectl-slurm: kubectl slurm completion fish | source
function __kubectl_slurm
  set -l words (commandline -opc) (commandline -ct)
  {_COMPLETER} $words[2..-1] 2>/dev/null | string match -rv '^:[0-9]*$'
end
complete -c kubectl-slurm -f -a '(__kubectl_slurm)'
"""

if __name__ == "__main__":
    sys.exit(main())
