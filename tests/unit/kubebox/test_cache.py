from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubebox import ToolError, build
from kubebox.cache import cache_root, content_key, obtain

PARTS = st.lists(st.binary(max_size=8), max_size=4)


@given(PARTS, PARTS)
def test_equal_keys_mean_equal_parts(one: list[bytes], other: list[bytes]) -> None:
    """Two lists of parts have the same key only when they are the same list."""
    assert (content_key(one) == content_key(other)) == (one == other)


@pytest.mark.parametrize("name", ["go.mod", "go.sum", "main.go"])
def test_key_changes_with_each_source(tmp_path: Path, name: str) -> None:
    """Every file that decides the binary decides the key."""
    for source in ("go.mod", "go.sum", "main.go"):
        (tmp_path / source).write_text(source)
    program = build.GoProgram("x", tmp_path, ".", "")
    before = program.key()
    assert program.key() == before
    (tmp_path / name).write_text("changed")
    assert program.key() != before


def test_key_changes_with_the_linker_flags(tmp_path: Path) -> None:
    """A binary that tells another version has another key."""
    for source in ("go.mod", "go.sum"):
        (tmp_path / source).write_text(source)
    keys = {build.GoProgram("x", tmp_path, ".", flags).key() for flags in ("", "-s", "-w")}
    assert len(keys) == 3


def test_key_changes_with_what_else_the_artifact_holds(tmp_path: Path) -> None:
    """kwok plays the stages that lie beside it, so another choice of stages is another artifact."""
    for source in ("go.mod", "go.sum"):
        (tmp_path / source).write_text(source)
    keys = {build.GoProgram("x", tmp_path, ".", "", extras).key() for extras in ((), ("a",), ("a", "b"))}
    assert len(keys) == 3
    assert build.KWOK.extras == build.KWOK_STAGE_FILES


def test_cache_folder_follows_the_xdg_rules() -> None:
    """XDG_CACHE_HOME decides when it is absolute; otherwise the home folder does."""
    assert cache_root({"XDG_CACHE_HOME": "/somewhere"}) == Path("/somewhere/kubebox")
    assert cache_root({}) == cache_root({"XDG_CACHE_HOME": "relative"}) == Path.home() / ".cache" / "kubebox"


def test_failed_build_leaves_nothing(tmp_path: Path) -> None:
    """A build that fails half-way leaves no artifact and no scratch folder, and the next one succeeds."""

    def fail(scratch: Path) -> None:
        (scratch / "half").write_text("half")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        obtain(tmp_path, "x", "1", fail)
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []
    place = obtain(tmp_path, "x", "1", lambda scratch: (scratch / "whole").touch())
    assert [path.name for path in place.iterdir()] == ["whole"]


def test_unwritable_cache_is_one_sentence(tmp_path: Path) -> None:
    """A cache folder that cannot be made is named with the variable that chooses another one."""
    (tmp_path / "file").touch()
    with pytest.raises(
        ToolError, match=rf"cache {tmp_path}/file/kubebox \(Not a directory\).*XDG_CACHE_HOME"
    ):
        obtain(tmp_path / "file" / "kubebox", "x", "1", lambda _: None)


def test_failure_to_read_or_write_names_the_artifact(tmp_path: Path) -> None:
    """A file that a maker misses is told as a failure of that artifact, not as one of the cache."""
    with pytest.raises(ToolError, match=r"making x failed: .*No such file.*stage\.yaml"):
        obtain(tmp_path, "x", "1", lambda scratch: (scratch / "stage.yaml").unlink())


def test_scratch_of_a_killed_build_is_removed(tmp_path: Path) -> None:
    """What a killed builder left is removed by the next one of the same artifact, and nothing else."""
    ours, other = tmp_path / ".x-1.part-dead", tmp_path / ".y-1.part-busy"
    ours.mkdir()
    other.mkdir()
    obtain(tmp_path, "x", "1", lambda _: None)
    assert not ours.exists()
    assert other.exists()


def test_concurrent_builders_build_once(tmp_path: Path) -> None:
    """Of many who want the same artifact at once one builds, and all others wait and get the same place."""
    builds: list[Path] = []
    waits: list[int] = []
    places: list[Path] = []

    def make(scratch: Path) -> None:
        builds.append(scratch)
        deadline = time.monotonic() + 20
        while len(waits) < 3:
            assert time.monotonic() < deadline, "the others did not wait"
            time.sleep(0.01)

    def want() -> None:
        places.append(obtain(tmp_path, "x", "1", make, lambda: waits.append(1)))

    threads = [threading.Thread(target=want) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(builds) == 1
    assert places == [tmp_path / "x-1"] * 4
