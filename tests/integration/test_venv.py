"""scripts/venv.py, run on requirements of its own so that it needs no package index."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "venv.py"


class Checkout:
    """A checkout with nothing but the script and requirements that ask for nothing."""

    def __init__(self, folder: Path) -> None:
        self.home = folder
        self.cache = folder / "cache"
        self._script = folder / "scripts" / SCRIPT.name
        self._script.parent.mkdir()
        shutil.copy(SCRIPT, self._script)
        (folder / "requirements").mkdir()
        (folder / "requirements" / "dev.txt").write_text("# nothing\n", encoding="utf-8")

    def run(self, *arguments: str, cache: Path | None = None) -> subprocess.CompletedProcess[str]:
        places = {"HOME": str(self.home), "XDG_CACHE_HOME": str(cache or self.cache)}
        return subprocess.run(
            [sys.executable, str(self._script), *arguments],
            cwd=self.home,
            env={**os.environ, **places},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_environment_is_made_once(checkout: Checkout) -> None:
    """A half-made environment is recreated; a whole one is found without writing anything."""
    path = Path(checkout.run("--path").stdout.strip())
    assert path.parent == checkout.cache / "slurm-operator"
    assert not path.parent.exists()
    path.mkdir(parents=True)
    (path / "half").touch()
    made = checkout.run()
    assert (made.returncode, made.stdout) == (0, f"{path}\n"), made.stderr
    assert not (path / "half").exists()
    subprocess.run([path / "bin" / "python", "-m", "pip", "--version"], check=True, capture_output=True)

    lock = path.with_name(f"{path.name}.lock")
    lock.unlink()
    lock.mkdir()  # whoever wants to write it fails, even as root
    again = checkout.run()
    assert (again.returncode, again.stdout, again.stderr) == (0, f"{path}\n", "")


def test_relative_cache_home_is_ignored(checkout: Checkout) -> None:
    """A relative XDG_CACHE_HOME would be another folder from each place of calling, so it does not count."""
    found = checkout.run("--path", cache=Path("relative"))
    assert Path(found.stdout).parent == checkout.home / ".cache" / "slurm-operator"


def test_unusable_cache_is_one_sentence(checkout: Checkout) -> None:
    """A cache that cannot be written is named with the variable that chooses another."""
    checkout.cache.touch()
    result = checkout.run()
    assert (result.returncode, result.stdout) == (1, "")
    assert "Not a directory" in result.stderr
    assert result.stderr.endswith("set XDG_CACHE_HOME to a writable folder\n")
    assert result.stderr.count("\n") == 1
