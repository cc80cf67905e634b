"""The flags of `slurm-operator webhook`: those of Slinky slurm-operator, and three of our own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from slurm_operator.flags import Parser, add_webhook_flags, parse, webhook_options

if TYPE_CHECKING:
    from slurm_operator.webhook.options import WebhookOptions


def read(*argv: str) -> WebhookOptions:
    parser = Parser(prog="webhook", usage="", description="")
    add_webhook_flags(parser)
    return webhook_options(parse(parser, argv))


def test_defaults_are_those_of_the_reference() -> None:
    """Without flags the webhook listens and looks where Slinky slurm-operator's does."""
    options = read()
    assert (options.server, options.health, options.metrics) == (("", 9443), ("", 8081), None)
    assert options.cert_dir == Path("/tmp/k8s-webhook-server/serving-certs")  # noqa: S108 - the name in the spec
    assert (options.namespaces, options.shutdown_delay, options.metrics_secure) == ((), 0, False)


def test_arguments_of_the_reference_are_understood() -> None:
    """The arguments that the reference's chart gives work unchanged."""
    options = read(
        "--zap-log-level=info",
        "--health-addr=:8081",
        "--metrics-addr=:8080",
        "--metrics-secure",
        "--server-addr=:9443",
        "--leader-elect",
        "--leader-elect-namespace=slinky",
        "--namespaces=a, b,a",
        "--enable-http2=false",
    )
    assert (options.metrics, options.metrics_secure, options.namespaces) == (("", 8080), True, ("a", "b"))


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("--server-addr=0", "want host:port"),
        ("--server-addr=9443", "want host:port"),
        ("--shutdown-delay=1h", "want seconds"),
        ("--shutdown-delay=31s", "from 0s to 30s"),
        ("--shutdown-delay=-1s", "want seconds"),
        ("--namespaces=A", "not the name of a namespace"),
        ("--nodeset-workers=3", "unknown flag"),
    ],
)
def test_mistakes_are_one_line(flag: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong flag ends with 2 and one line that names it."""
    with pytest.raises(SystemExit) as stopped:
        read(flag)
    assert stopped.value.code == 2
    text = capsys.readouterr().err
    assert (text.count("\n"), words in text) == (1, True)


def test_the_process_is_lean() -> None:
    """Nothing that only the manager needs is loaded: no controllers, no Slurm client, no cryptography."""
    program = (
        "import sys, slurm_operator.webhook.webhook_process; "
        "print(sorted(name for name in sys.modules if name.startswith((*"
        "('slurm_operator.controllers', 'slurm_operator.slurm.rest.client', 'cryptography', 'jwt'),))))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
