"""Every flag of Slinky slurm-operator and a few of our own, read as Go reads flags and checked at the start.

Go accepts `-flag` and `--flag`, `--flag=value` and `--flag value`; a boolean flag takes its value only after
`=` and is true without one. `normalise` brings all of that into the one form `--flag=value`, which argparse
then checks and documents. A mistake ends with one line that names the flag and says what is allowed, and with
exit code 2. Namespaces and addresses are checked here, not where they are used, so that a typing error shows
itself at the start and not at the first failover. The values of the zap flags are read in any case, as
controller-runtime reads them.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from slurm_operator import flagvalues as values
from slurm_operator.kube.process.log import ENCODERS, LEVELS, TIME_ENCODINGS, LogOptions
from slurm_operator.webhook.options import CERTIFICATE_FOLDER, WebhookOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from slurm_operator.kube.process.listen_address import ListenAddress

USAGE_ERROR = 2

_BOOLEANS = "A boolean flag alone means true; --flag=false switches it off."
_IGNORED = "accepted for compatibility; {}"
# controller-runtime accepts `nanos`, but its help text has `nano`: users have written both.
_TIME_ENCODING_ALIASES = {"nano": "nanos"}

WORKERS = ("controller", "restapi", "accounting", "nodeset", "loginset", "slurmclient", "token", "cluster")


@dataclass(frozen=True)
class ManagerOptions:
    """What `slurm-operator manager` was asked to do."""

    kubeconfig: str | None
    health: ListenAddress | None
    metrics: ListenAddress | None
    metrics_secure: bool
    enable_http2: bool
    leader_elect: bool
    leader_elect_namespace: str
    namespaces: tuple[str, ...]
    propagated_node_conditions: tuple[str, ...]
    profile: ListenAddress | None
    status: ListenAddress | None
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
    """Define the flags of the manager, with the defaults of Slinky slurm-operator."""
    parser.epilog = _BOOLEANS
    process = parser.add_argument_group("process")
    _kubeconfig_flag(process)
    _value(
        process,
        "namespaces",
        "",
        values.namespaces,
        "LIST",
        "namespaces to watch, separated by commas; empty: all",
    )
    _boolean(
        process, "leader-elect", "lead only while holding the Lease slurm-operator; needed for two replicas"
    )
    _value(
        process,
        "leader-elect-namespace",
        "",
        values.namespace,
        "NAME",
        "namespace of that Lease; empty: the process's own",
    )
    _value(
        process,
        "propagated-node-conditions",
        "",
        values.conditions,
        "LIST",
        "Node conditions that explain a cordon as the drain reason, by commas",
    )
    _value(
        process,
        "slurm-api-override",
        "",
        values.slurm_url,
        "URL",
        "slurmrestd to use for every cluster, for a manager outside of Kubernetes; empty: each its own",
    )
    servers = parser.add_argument_group("servers (an address is host:port or :port; 0 disables)")
    _health_flag(servers)
    _value(
        servers,
        "metrics-addr",
        values.METRICS_ADDRESS,
        values.metrics_address,
        "ADDR",
        "where /metrics listens",
    )
    _metrics_flags(servers)
    _value(servers, "status-addr", ":8082", values.address, "ADDR", "where the status API (/api/v1/) listens")
    _boolean(servers, "profile", "serve stacks, profiles and memory under /debug/pprof/")
    _value(servers, "profile-addr", "localhost:6060", values.address, "ADDR", "where /debug/pprof/ listens")
    workers = parser.add_argument_group("workers (reconciles at the same time)")
    for name in WORKERS:
        _value(workers, f"{name}-workers", "1", values.count, "N", f"for the {name} controller")
    _logging_flags(parser)


def add_webhook_flags(parser: argparse.ArgumentParser) -> None:
    """Define the flags of the webhook, with the defaults of Slinky slurm-operator's webhook."""
    parser.epilog = _BOOLEANS
    process = parser.add_argument_group("process")
    _kubeconfig_flag(process)
    _value(
        process,
        "namespaces",
        "",
        values.namespaces,
        "LIST",
        "namespaces in which named objects are looked at, separated by commas; empty: all",
    )
    _value(
        process,
        "shutdown-delay",
        "0s",
        values.seconds,
        "DURATION",
        "how long to serve on after SIGTERM, while no longer ready",
    )
    _boolean(process, "leader-elect", _IGNORED.format("every replica serves"))
    _value(
        process, "leader-elect-namespace", "", values.namespace, "NAME", _IGNORED.format("there is no Lease")
    )
    servers = parser.add_argument_group("servers (an address is host:port or :port; 0 disables)")
    _value(servers, "server-addr", ":9443", values.needed_address, "ADDR", "where the webhooks listen; not 0")
    _text(servers, "cert-dir", CERTIFICATE_FOLDER, "folder with tls.crt and tls.key", "DIR")
    _text(
        servers,
        "client-ca-file",
        "",
        "PEM file with the CA of the API server's client certificate; clients without one are rejected; "
        "empty: all clients are accepted",
        "FILE",
    )
    _health_flag(servers)
    _value(servers, "metrics-addr", "0", values.address, "ADDR", "where /metrics listens")
    _metrics_flags(servers)
    _logging_flags(parser)


def webhook_options(parsed: argparse.Namespace) -> WebhookOptions:
    """Turn parsed flags into options."""
    return WebhookOptions(
        kubeconfig=parsed.kubeconfig or None,
        server=parsed.server_addr,
        cert_dir=Path(parsed.cert_dir),
        client_ca=Path(parsed.client_ca_file) if parsed.client_ca_file else None,
        health=parsed.health_addr,
        metrics=parsed.metrics_addr,
        metrics_secure=parsed.metrics_secure,
        namespaces=parsed.namespaces,
        shutdown_delay=parsed.shutdown_delay,
        log=_log_options(parsed),
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
        status=parsed.status_addr,
        workers={name: getattr(parsed, f"{name}_workers") for name in WORKERS},
        slurm_api_override=parsed.slurm_api_override,
        log=_log_options(parsed),
    )


def _log_options(parsed: argparse.Namespace) -> LogOptions:
    return LogOptions(
        devel=parsed.zap_devel,
        encoder=parsed.zap_encoder or None,
        level=parsed.zap_log_level,
        stacktrace_level=LEVELS[parsed.zap_stacktrace_level] if parsed.zap_stacktrace_level else None,
        time_encoding=parsed.zap_time_encoding or "rfc3339",
    )


# ----------------------------------------------------------------------------------- what both commands have


def _kubeconfig_flag(group: argparse._ArgumentGroup) -> None:
    text = "kubeconfig file; else $KUBECONFIG, the pod's service account, ~/.kube/config"
    _text(group, "kubeconfig", "", text, "FILE")


def _health_flag(group: argparse._ArgumentGroup) -> None:
    _value(group, "health-addr", ":8081", values.address, "ADDR", "where /healthz and /readyz listen")


def _metrics_flags(group: argparse._ArgumentGroup) -> None:
    _boolean(group, "metrics-secure", "serve /metrics over TLS, to those whom the API server allows")
    _boolean(group, "enable-http2", "accepted for compatibility; these servers speak HTTP/1.1 only")


def _logging_flags(parser: argparse.ArgumentParser) -> None:
    logging = parser.add_argument_group("logging")
    _boolean(logging, "zap-devel", "developer's log: console encoder, level debug, stack traces from warn on")
    _value(logging, "zap-encoder", "", values.choice(ENCODERS), "NAME", f"one of {', '.join(ENCODERS)}")
    _value(
        logging,
        "zap-log-level",
        "",
        values.level,
        "LEVEL",
        f"one of {', '.join(LEVELS)}, or a number above 0",
    )
    _value(
        logging,
        "zap-stacktrace-level",
        "",
        values.choice(tuple(LEVELS)),
        "LEVEL",
        f"one of {', '.join(LEVELS)}",
    )
    _value(
        logging,
        "zap-time-encoding",
        "rfc3339",
        values.choice(TIME_ENCODINGS, _TIME_ENCODING_ALIASES),
        "NAME",
        f"one of {', '.join(TIME_ENCODINGS)}",
    )


# ---------------------------------------------------------------------------------------------------- parsing


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
        if action.type is values.boolean:
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


def _text(group: argparse._ArgumentGroup, name: str, default: str, text: str, metavar: str) -> None:
    shown = f" (default {default})" if default else ""
    group.add_argument(f"--{name}", default=default, metavar=metavar, help=text + shown)


def _boolean(group: argparse._ArgumentGroup, name: str, text: str) -> None:
    group.add_argument(f"--{name}", default=False, type=values.boolean, metavar="BOOL", help=text)
