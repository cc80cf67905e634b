"""Every flag of the Go operator and a few of our own, read as Go reads flags and checked before the start.

Go accepts `-flag` and `--flag`, `--flag=value` and `--flag value`; a boolean flag takes its value only after
`=` and is true without one. `normalise` brings all of that into the one form `--flag=value`, which argparse
then checks and documents. A mistake ends with one line that names the flag and says what is allowed, and with
exit code 2. Namespaces and addresses are checked here, not where they are used, so that a typing error shows
itself at the start and not at the first failover. The values of the zap flags are read in any case, as
controller-runtime reads them.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from slurm_operator.kube.address import Address, parse_address
from slurm_operator.kube.log import ENCODERS, LEVELS, TIME_ENCODINGS, LogOptions, parse_level
from slurm_operator.slurm.address import parse_url

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

USAGE_ERROR = 2

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_CONDITION_TYPE = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
# The spellings of strconv.ParseBool.
_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})
# Beyond this the API server is the limit, and the value is most likely a typing error.
_MOST_WORKERS = 1000
_METRICS_ADDRESS = ":8080"
# controller-runtime reads `nanos` and calls it `nano` in its help: people have written both.
_TIME_ENCODING_ALIASES = {"nano": "nanos"}

WORKERS = ("controller", "restapi", "accounting", "nodeset", "loginset", "slurmclient", "token", "cluster")


@dataclass(frozen=True)
class ManagerOptions:
    """What `slurm-operator manager` was asked to do."""

    kubeconfig: str | None
    health: Address | None
    metrics: Address | None
    metrics_secure: bool
    enable_http2: bool
    leader_elect: bool
    leader_elect_namespace: str
    namespaces: tuple[str, ...]
    propagated_node_conditions: tuple[str, ...]
    profile: Address | None
    workers: dict[str, int]
    slurm_api_override: str | None
    log: LogOptions


class Parser(argparse.ArgumentParser):
    """An argparse parser with one-line errors, exact flag names, and room for long ones in its help."""

    def __init__(self, *, prog: str, usage: str, description: str, epilog: str | None = None) -> None:
        super().__init__(
            prog=prog,
            usage=usage,
            description=description,
            epilog=epilog,
            allow_abbrev=False,
            formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, max_help_position=36),
        )

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and end with the code of a usage error."""
        text = message.removeprefix("argument ").replace(
            "unrecognized arguments:", "unknown flag or argument:"
        )
        self.exit(USAGE_ERROR, f"{self.prog}: {text} (see {self.prog} --help)\n")


def add_manager_flags(parser: argparse.ArgumentParser) -> None:
    """Define the flags of the manager, with the defaults of the Go operator."""
    parser.epilog = "A boolean flag alone means true; --flag=false switches it off."
    process = parser.add_argument_group("process")
    _text(
        process,
        "kubeconfig",
        "",
        "kubeconfig file; else $KUBECONFIG, the pod's service account, ~/.kube/config",
    )
    _value(
        process, "namespaces", "", _namespaces, "LIST", "namespaces to watch, separated by commas; empty: all"
    )
    _boolean(
        process, "leader-elect", "lead only while holding the Lease slurm-operator; needed for two replicas"
    )
    _value(
        process,
        "leader-elect-namespace",
        "",
        _namespace,
        "NAME",
        "namespace of that Lease; empty: the process's own",
    )
    _value(
        process,
        "propagated-node-conditions",
        "",
        _conditions,
        "LIST",
        "Node conditions that explain a cordon as the drain reason, by commas",
    )
    _value(
        process,
        "slurm-api-override",
        "",
        _slurm_url,
        "URL",
        "slurmrestd to use for every cluster, for a manager outside of Kubernetes; empty: each its own",
    )
    servers = parser.add_argument_group("servers (an address is host:port or :port; 0 disables)")
    _value(servers, "health-addr", ":8081", _address, "ADDR", "where /healthz and /readyz listen")
    _value(servers, "metrics-addr", _METRICS_ADDRESS, _metrics_address, "ADDR", "where /metrics listens")
    _boolean(servers, "metrics-secure", "serve /metrics over TLS, to those whom the API server allows")
    _boolean(servers, "enable-http2", "accepted for compatibility; these servers speak HTTP/1.1 only")
    _boolean(servers, "profile", "serve stacks, profiles and memory under /debug/pprof/")
    _value(servers, "profile-addr", "localhost:6060", _address, "ADDR", "where /debug/pprof/ listens")
    workers = parser.add_argument_group("workers (reconciles at the same time)")
    for name in WORKERS:
        _value(workers, f"{name}-workers", "1", _count, "N", f"for the {name} controller")
    logging = parser.add_argument_group("logging")
    _boolean(logging, "zap-devel", "developer's log: console encoder, level debug, stack traces from warn on")
    _value(logging, "zap-encoder", "", _choice(ENCODERS), "NAME", f"one of {', '.join(ENCODERS)}")
    _value(logging, "zap-log-level", "", _level, "LEVEL", f"one of {', '.join(LEVELS)}, or a number above 0")
    _value(
        logging, "zap-stacktrace-level", "", _choice(tuple(LEVELS)), "LEVEL", f"one of {', '.join(LEVELS)}"
    )
    _value(
        logging,
        "zap-time-encoding",
        "rfc3339",
        _choice(TIME_ENCODINGS, _TIME_ENCODING_ALIASES),
        "NAME",
        f"one of {', '.join(TIME_ENCODINGS)}",
    )


def manager_options(parsed: argparse.Namespace) -> ManagerOptions:
    """Turn parsed flags into options."""
    return ManagerOptions(
        kubeconfig=parsed.kubeconfig or None,
        health=parsed.health_addr,
        metrics=parsed.metrics_addr,
        metrics_secure=parsed.metrics_secure,
        enable_http2=parsed.enable_http2,
        leader_elect=parsed.leader_elect,
        leader_elect_namespace=parsed.leader_elect_namespace,
        namespaces=parsed.namespaces,
        propagated_node_conditions=parsed.propagated_node_conditions,
        profile=parsed.profile_addr if parsed.profile else None,
        workers={name: getattr(parsed, f"{name}_workers") for name in WORKERS},
        slurm_api_override=parsed.slurm_api_override,
        log=LogOptions(
            devel=parsed.zap_devel,
            encoder=parsed.zap_encoder or None,
            level=parsed.zap_log_level,
            stacktrace_level=LEVELS[parsed.zap_stacktrace_level] if parsed.zap_stacktrace_level else None,
            time_encoding=parsed.zap_time_encoding or "rfc3339",
        ),
    )


def normalise(argv: Sequence[str], booleans: frozenset[str], valued: frozenset[str]) -> list[str]:
    """Rewrite Go's ways to write a flag into `--flag=value`; what is no known flag stays as it is."""
    result: list[str] = []
    rest = iter(argv)
    for word in rest:
        name, equals, _ = word.lstrip("-").partition("=")
        dashes = len(word) - len(word.lstrip("-"))
        if dashes not in (1, 2) or name not in booleans | valued:
            result.append(word)
        elif equals:
            result.append("--" + word.lstrip("-"))
        elif name in booleans:
            result.append(f"--{name}=true")
        else:
            value = next(rest, None)
            result.append(f"--{name}" if value is None else f"--{name}={value}")
    return result


def parse(parser: argparse.ArgumentParser, argv: Sequence[str]) -> argparse.Namespace:
    """Parse Go-style flags; exits with one line when they are wrong."""
    booleans, valued = set(), set()
    for action in parser._actions:  # noqa: SLF001 - argparse offers no other way to list what it knows
        names = {option.lstrip("-") for option in action.option_strings}
        if action.type is _bool:
            booleans |= names
        elif action.nargs != 0:
            valued |= names
    return parser.parse_args(normalise(argv, frozenset(booleans), frozenset(valued)))


def _value(
    group: argparse._ArgumentGroup,
    name: str,
    default: str,
    kind: Callable[[str], object],
    metavar: str,
    text: str,
) -> None:
    shown = f" (default {default})" if default else ""
    group.add_argument(f"--{name}", default=default, type=kind, metavar=metavar, help=text + shown)


def _text(group: argparse._ArgumentGroup, name: str, default: str, text: str) -> None:
    group.add_argument(f"--{name}", default=default, metavar="FILE", help=text)


def _boolean(group: argparse._ArgumentGroup, name: str, text: str) -> None:
    group.add_argument(f"--{name}", default=False, type=_bool, metavar="BOOL", help=text)


def _bool(text: str) -> bool:
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise argparse.ArgumentTypeError(f"want true or false, not {text!r}")


def _address(text: str) -> Address | None:
    try:
        return parse_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _metrics_address(text: str) -> Address | None:
    # controller-runtime's rule for this one server: empty is the default, only 0 switches it off.
    return _address(text or _METRICS_ADDRESS)


def _slurm_url(text: str) -> str | None:
    try:
        return parse_url(text) if text else None
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _level(text: str) -> int | None:
    try:
        return parse_level(text) if text else None
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _count(text: str) -> int:
    if text.isascii() and text.isdecimal() and 1 <= int(text) <= _MOST_WORKERS:
        return int(text)
    raise argparse.ArgumentTypeError(f"want a whole number from 1 to {_MOST_WORKERS}, not {text!r}")


def _choice(allowed: tuple[str, ...], aliases: Mapping[str, str] | None = None) -> Callable[[str], str]:
    def choose(text: str) -> str:
        name = (aliases or {}).get(text.lower(), text.lower())
        if name and name not in allowed:
            raise argparse.ArgumentTypeError(f"want one of {', '.join(allowed)}, not {text!r}")
        return name

    return choose


def _namespace(text: str) -> str:
    if text and not _DNS_LABEL.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not the name of a namespace: at most 63 lower-case letters, digits and dashes"
        )
    return text


def _namespaces(text: str) -> tuple[str, ...]:
    # Once each and in the order given: a namespace listed twice must not be watched twice.
    return tuple(dict.fromkeys(_namespace(part) for part in _parts(text)))


def _conditions(text: str) -> tuple[str, ...]:
    parts = _parts(text)
    for part in parts:
        if not _CONDITION_TYPE.fullmatch(part):
            raise argparse.ArgumentTypeError(f"{part!r} is not a Node condition type, such as DiskPressure")
    return tuple(dict.fromkeys(parts))


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
