from __future__ import annotations

import pytest

from slurm_operator.plugin.arguments import COMMANDS, parse
from slurm_operator.plugin.completion import candidates, script
from slurm_operator.plugin.entry import main


def test_common_flags_stand_before_or_after_the_command() -> None:
    """`kubectl slurm -n x status` and `kubectl slurm status -n x` are the same."""
    for arguments in (["-n", "x", "status"], ["status", "-n", "x"], ["status", "--namespace=x"]):
        options = parse(arguments)
        assert (options.command, options.namespace, options.all_namespaces) == ("status", "x", False)
    assert parse(["-A", "nodes"]).all_namespaces
    assert parse(["jobs", "--user", "alice", "--state=pending"]).user == "alice"


@pytest.mark.parametrize(
    ("given", "kind", "name"),
    [
        (["explain", "pod", "p"], "pod", "p"),
        (["explain", "po/p"], "pod", "p"),
        (["explain", "NodeSets", "n"], "nodeset", "n"),
        (["explain", "job", "42"], "job", "42"),
        (["history", "nodeset/n"], "NodeSet", "n"),
        (["history", "controller", "slurm"], "Controller", "slurm"),
    ],
)
def test_kinds_are_known_by_several_words(given: list[str], kind: str, name: str) -> None:
    """A kind may be written as kubectl takes it, with its name behind a space or a slash."""
    options = parse(given)
    assert (options.kind, options.name) == (kind, name)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([], "COMMAND"),
        (["nonsense"], "invalid choice"),
        (["explain", "service", "x"], "unknown kind 'service'"),
        (["explain", "pod"], "a name is missing"),
        (["explain", "job", "x1"], "not the number of a job"),
        (["explain", "job", "\u0664\u0662"], "not the number of a job"),
        (["dashboard", "--port", "65536"], "--port: want a number"),
        (["dashboard", "--port=-1"], "--port: want a number"),
        (["drain", "gpu-0"], "--reason"),
        (["drain", "gpu-0", "--reason", " "], "--reason: empty"),
        (["status", "-n", "x", "-A"], "exclude each other"),
        (["status", "--viewer", "x"], "NAMESPACE/NAME"),
        (["status", "-o", "xml"], "invalid choice"),
        (["status", "--names", "x"], "unrecognized arguments"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_code_2(
    given: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mistake is reported before anything is sent."""
    with pytest.raises(SystemExit) as ended:
        parse(given)
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1


def test_version_and_completion_need_no_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    """They print without a kubeconfig."""
    assert main(["version"]) == 0
    assert capsys.readouterr().out.startswith("kubectl slurm ")
    for shell in ("bash", "zsh", "fish"):
        assert main(["completion", shell]) == 0
        assert "kubectl_complete-slurm" in capsys.readouterr().out
        assert script(shell)


@pytest.mark.parametrize(
    ("words", "found", "kind"),
    [
        ([""], [*COMMANDS], ""),
        (["st"], ["status"], ""),
        (["-n", "slurm", "dr"], ["drain"], ""),
        (["explain", ""], ["pod", "nodeset", "node", "job"], ""),
        (["explain", "pod", ""], [], "pod"),
        (["explain", "node", "g"], [], "pod"),
        (["explain", "job", ""], [], ""),
        (["explain", "pod", "x", ""], [], ""),
        (["history", "contr"], ["controller"], ""),
        (["history", "controller", ""], [], "cluster"),
        (["nodes", ""], [], "nodeset"),
        (["drain", "--reason", ""], [], ""),
        (["status", "-o", "j"], ["json"], ""),
        (["jobs", "--state", "P"], ["PENDING"], ""),
        (["undrain", "--f"], ["--force"], ""),
        (["status", "--cont"], ["--context"], ""),
        (["status", "-n", ""], [], ""),
        (["completion", "z"], ["zsh"], ""),
        ([], [*COMMANDS], ""),
    ],
)
def test_completion(words: list[str], found: list[str], kind: str) -> None:
    """What fits the last word is offered: commands, flags, kinds, values, and names of objects."""
    assert candidates(words) == (found, kind)
