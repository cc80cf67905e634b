"""The command line of `kubectl slurm`: commands, flags, and the words by which kinds are known.

Nothing here imports more than argparse, so that help and shell completion are fast.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

from slurm_operator.plugin.exits import ExitCode

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAM: Final = "kubectl slurm"
OUTPUTS: Final = ("wide", "json", "yaml")
SHELLS: Final = ("bash", "zsh", "fish")
_LAST_PORT: Final = 65535
# What a user may write for each kind that can be explained.
KINDS: Final = {
    "pod": ("pod", "pods", "po"),
    "nodeset": ("nodeset", "nodesets", "nss"),
    "node": ("node", "nodes", "no"),
    "job": ("job", "jobs"),
}
# History is kept of these, too.
HISTORY_KINDS: Final = {
    "Pod": KINDS["pod"],
    "NodeSet": KINDS["nodeset"],
    "Controller": ("controller", "controllers", "slurmctld"),
    "RestApi": ("restapi", "restapis"),
    "LoginSet": ("loginset", "loginsets"),
    "Accounting": ("accounting", "accountings"),
    "Token": ("token", "tokens"),
    "Cluster": ("cluster", "clusters"),
}


@dataclass(frozen=True, slots=True)
class CommandHelp:
    """What a command is for, and how it is called."""

    usage: str
    text: str


COMMANDS: Final = {
    "status": CommandHelp("[CLUSTER]", "show control plane, NodeSets, jobs and what is blocked"),
    "nodes": CommandHelp("[NODESET]", "list workers: pod, Slurm node, Kubernetes node, jobs"),
    "jobs": CommandHelp("[CLUSTER]", "list jobs and the workers under them"),
    "explain": CommandHelp(
        "pod|nodeset|node|job NAME", "say why something is as it is, and what it waits for"
    ),
    "history": CommandHelp("KIND NAME", "list what the operator did to an object, and why"),
    "drain": CommandHelp("NODE --reason TEXT", "let a worker take no new jobs"),
    "undrain": CommandHelp("NODE", "take back a drain that you made with this command"),
    "doctor": CommandHelp("", "check the installation"),
    "dashboard": CommandHelp("", "open the status page of the operator"),
    "completion": CommandHelp("bash|zsh|fish", "print a script for shell completion"),
    "version": CommandHelp("", "print the version"),
}

# Flags that every command takes, before or after its name; the value is what stands in help for theirs.
COMMON_FLAGS: Final = {
    "--namespace": "NAMESPACE",
    "--all-namespaces": "",
    "--context": "NAME",
    "--kubeconfig": "FILE",
    "--operator-namespace": "NAMESPACE",
    "--viewer": "NAMESPACE/NAME",
}
_SHORT: Final = {"--namespace": "-n", "--all-namespaces": "-A"}
_HELP: Final = {
    "--namespace": "namespace; without it, that of the context",
    "--all-namespaces": "all namespaces",
    "--context": "context of the kubeconfig",
    "--kubeconfig": "kubeconfig file; without it $KUBECONFIG, then ~/.kube/config",
    "--operator-namespace": "namespace of the operator; without it, it is looked for (slinky first)",
    "--viewer": "another ServiceAccount whose token opens the operator's API",
}


@dataclass(slots=True)
class Options(argparse.Namespace):
    """A parsed command line."""

    command: str = ""
    namespace: str = ""
    all_namespaces: bool = False
    context: str | None = None
    kubeconfig: str | None = None
    operator_namespace: str = ""
    viewer: str = ""
    output: str = ""
    watch: bool = False
    name: str = ""
    kind: str = ""
    reason: str = ""
    force: bool = False
    blocked: bool = False
    user: str = ""
    state: str = ""
    partition: str = ""
    node: str = ""
    port: int = 0
    no_browser: bool = False
    shell: str = ""


class LineParser(argparse.ArgumentParser):
    """A parser whose mistakes are one line, with exact flag names."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and end with the code of a usage error."""
        text = message.removeprefix("argument ")
        self.exit(ExitCode.USAGE, f"{PROGRAM}: {text} (see {self.prog} --help)\n")


def parse(arguments: Sequence[str]) -> Options:
    """Return what was asked for; a mistake ends the process with one line and code 2."""
    common = LineParser(add_help=False, allow_abbrev=False)
    for flag, metavar in COMMON_FLAGS.items():
        names = (_SHORT[flag], flag) if flag in _SHORT else (flag,)
        if metavar:
            common.add_argument(*names, metavar=metavar, default=argparse.SUPPRESS, help=_HELP[flag])
        else:
            common.add_argument(*names, action="store_true", default=argparse.SUPPRESS, help=_HELP[flag])
    parser = LineParser(
        prog=PROGRAM,
        description="Shows what the Slurm operator does and why.",
        epilog="Exit codes: 0 done, 1 it failed, 2 wrong command line, 3 no such object, 4 no permission, "
        "5 no operator, 6 the operator is too old for the command.",
        parents=[common],
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, parser_class=LineParser
    )
    for name, about in COMMANDS.items():
        usage = f"{PROGRAM} {name} {about.usage}".strip()
        made = commands.add_parser(
            name,
            help=about.text,
            description=f"{about.text[:1].upper()}{about.text[1:]}.",
            usage=f"{usage} [flags]",
            prog=f"{PROGRAM} {name}",
            parents=[common],
            allow_abbrev=False,
        )
        _add_flags(made, name)
    options = parser.parse_args(arguments, namespace=Options())
    _check(parser, options)
    return options


def _add_flags(parser: argparse.ArgumentParser, command: str) -> None:
    if command in ("status", "nodes", "jobs"):
        parser.add_argument("name", nargs="?", default="", metavar=COMMANDS[command].usage.strip("[]"))
        parser.add_argument(
            "-w", "--watch", action="store_true", help="print again when something has changed"
        )
    if command in ("status", "nodes", "jobs", "history", "explain", "doctor"):
        parser.add_argument("-o", "--output", choices=OUTPUTS, default="", help="more columns, JSON or YAML")
    if command == "nodes":
        parser.add_argument("--blocked", action="store_true", help="only workers that wait for something")
    if command == "jobs":
        for flag, text in (
            ("--user", "only jobs of a user"),
            ("--state", "only jobs in a state, such as PENDING"),
            ("--partition", "only jobs of a partition"),
            ("--node", "only jobs on a Slurm node"),
        ):
            parser.add_argument(flag, default="", metavar=flag[2:].upper(), help=text)
    if command in ("explain", "history"):
        parser.add_argument("kind", metavar="KIND", help="KIND NAME or KIND/NAME")
        parser.add_argument("name", nargs="?", default="", metavar="NAME")
    if command in ("drain", "undrain"):
        parser.add_argument("name", metavar="NODE", help="Slurm node or pod")
    if command == "drain":
        parser.add_argument(
            "--reason", required=True, metavar="TEXT", help="why; Slurm shows it as the reason"
        )
    if command == "undrain":
        parser.add_argument("--force", action="store_true", help="also if another user cordoned the pod")
    if command == "dashboard":
        parser.add_argument("--port", type=int, default=0, metavar="PORT", help="port on loopback; 0: any")
        parser.add_argument("--no-browser", action="store_true", help="only print the address")
    if command == "completion":
        parser.add_argument("shell", choices=SHELLS)


def _check(parser: LineParser, options: Options) -> None:
    if options.namespace and options.all_namespaces:
        parser.error("--namespace and --all-namespaces exclude each other")
    if options.command in ("explain", "history"):
        if "/" in options.kind and not options.name:
            options.kind, _, options.name = options.kind.partition("/")
        known = KINDS if options.command == "explain" else HISTORY_KINDS
        given = options.kind
        options.kind = next((kind for kind, words in known.items() if given.lower() in words), "")
        if not options.kind:
            parser.error(f"unknown kind {given!r}: want one of {', '.join(known)}")
        if not options.name:
            parser.error(f"a name is missing: {PROGRAM} {options.command} {given} NAME")
        if options.kind == "job" and not (options.name.isascii() and options.name.isdecimal()):
            parser.error(f"{options.name!r} is not the number of a job")
    if options.viewer and options.viewer.count("/") != 1:
        parser.error("--viewer: want NAMESPACE/NAME")
    if not 0 <= options.port <= _LAST_PORT:
        parser.error(f"--port: want a number from 0 to {_LAST_PORT}")
    if options.command == "drain" and not options.reason.strip():
        parser.error("--reason: empty")
