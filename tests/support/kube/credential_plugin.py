"""A credential plugin that really runs, for the tests of credentials."""

from __future__ import annotations

import json
import ssl
from typing import TYPE_CHECKING, Any

from slurm_operator.kube.client.exec_plugin import ExecPlugin, ExecSpec
from tests.support.executables import python_program

if TYPE_CHECKING:
    from pathlib import Path

    from slurm_operator.kube.client.auth import Auth

V1 = "client.authentication.k8s.io/v1"
V1BETA1 = "client.authentication.k8s.io/v1beta1"
# Prints the file `answer` beside it after noting that it ran, with which arguments and in which environment.
PLUGIN = """
import json, os, pathlib, sys
here = pathlib.Path(__file__).parent
with (here / "runs").open("a") as runs:
    runs.write(json.dumps({"args": sys.argv[1:], "extra": os.environ.get("EXTRA"),
        "info": json.loads(os.environ["KUBERNETES_EXEC_INFO"]), "tty": sys.stdin.isatty()}) + "\\n")
answer = here / "answer"
if not answer.exists():
    sys.exit(3)
sys.stdout.write(answer.read_text())
"""


def exec_auth(
    folder: Path, cluster: dict[str, Any] | None = None, seconds: float = 30.0, **spec: Any
) -> ExecPlugin:
    """Return credentials from the program `plugin` of a folder, unless the spec names another."""
    given = {"command": "./plugin", "api_version": V1, "interactive_mode": "Never", **spec}
    return ExecPlugin(
        ExecSpec(**given),
        directory=folder,
        cluster=cluster,
        trust=ssl.create_default_context,
        where="config: users[x].user.exec",
        seconds=seconds,
    )


class Plugin:
    """A real credential plugin in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        python_program(folder / "plugin", PLUGIN)

    def answers(self, status: dict[str, Any], version: str = V1, kind: str = "ExecCredential") -> None:
        content = {"apiVersion": version, "kind": kind, "status": status}
        (self.folder / "answer").write_text(json.dumps(content), encoding="utf-8")

    @property
    def runs(self) -> list[dict[str, Any]]:
        path = self.folder / "runs"
        return (
            [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
            if path.exists()
            else []
        )

    def auth(self, cluster: dict[str, Any] | None = None, **spec: Any) -> ExecPlugin:
        return exec_auth(self.folder, cluster, **spec)


async def token_of(auth: Auth) -> str | None:
    return (await auth.headers()).get("Authorization")
