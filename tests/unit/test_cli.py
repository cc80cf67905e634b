from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import yaml

from slurm_operator import __version__
from slurm_operator.cli import main

if TYPE_CHECKING:
    from pathlib import Path

PLURALS = ["accountings", "clusters", "controllers", "loginsets", "nodesets", "restapis", "tokens"]


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """`version` prints the version on standard output."""
    assert main(["version"]) == 0
    assert capsys.readouterr().out.startswith(f"slurm-operator {__version__} ")


def test_crds_prints_all_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    """`crds` prints one YAML document for each kind."""
    assert main(["crds"]) == 0
    documents = list(yaml.safe_load_all(capsys.readouterr().out))
    assert [document["kind"] for document in documents] == ["CustomResourceDefinition"] * len(PLURALS)
    assert sorted(document["spec"]["names"]["plural"] for document in documents) == PLURALS


def test_crds_writes_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`crds --output-dir` makes the folder and writes one file for each kind, and prints nothing."""
    folder = tmp_path / "new" / "crds"
    assert main(["crds", "--output-dir", str(folder)]) == 0
    assert capsys.readouterr().out == ""
    kinds = {yaml.safe_load(path.read_text())["spec"]["names"]["plural"] for path in folder.iterdir()}
    assert sorted(kinds) == PLURALS


def test_crds_into_a_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder that cannot be made is one line that names it, and exit code 1."""
    (tmp_path / "file").write_text("")
    assert main(["crds", "--output-dir", str(tmp_path / "file" / "crds")]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert str(tmp_path / "file") in err


@pytest.mark.parametrize("argv", [[], ["frobnicate"], ["--flag"], ["version", "extra"], ["crds", "--bogus"]])
def test_wrong_commands_are_one_line(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A missing or unknown command, or an argument it does not take, is one line and exit code 2."""
    with pytest.raises(SystemExit) as stopped:
        main(argv)
    assert stopped.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_help_lists_commands(capsys: pytest.CaptureFixture[str]) -> None:
    """The help names every command there is, and none that there is not."""
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0
    out = capsys.readouterr().out
    for command in ("manager", "webhook", "crds", "version"):
        assert f"\n  {command}" in out


def test_small_commands_do_not_load_the_runtime() -> None:
    """Printing a version loads neither the HTTP stack nor the certificate library."""
    program = (
        "import sys; from slurm_operator.cli import main; main(['version']); "
        "print(sorted({'aiohttp', 'cryptography', 'prometheus_client'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"
