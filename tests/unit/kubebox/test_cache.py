from __future__ import annotations

import fcntl
import os
import shutil
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubebox import ToolError, build
from kubebox.cache import cache_root, content_key, hold, obtain, prune

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
        deadline = time.monotonic() + 120
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


# ---------------------------------------------------------------------------------------------------- pruning


def use(root: Path, key: str, days: float) -> Path:
    """Make an artifact and let its last use be some days ago."""

    def make(scratch: Path) -> None:
        (scratch / "file").write_text(key)

    place = obtain(root, "thing", key * 16, make)
    when = time.time() - days * 24 * 3600
    os.utime(place, (when, when))
    return place


def test_old_artifacts_go_but_for_the_newest_few(tmp_path: Path) -> None:
    """What was not used for a day goes, unless it is among the four that were used last."""
    places = [use(tmp_path, key, days) for key, days in zip("abcdef", (9, 8, 7, 6, 0.5, 0), strict=True)]
    other = obtain(tmp_path, "thing-else", "a" * 16, lambda _: None)
    os.utime(other, (0, 0))
    assert prune(tmp_path, "thing") == ["thing-" + "b" * 16, "thing-" + "a" * 16]
    assert [place.is_dir() for place in places] == [False, False, True, True, True, True]
    assert other.is_dir()
    assert not [*tmp_path.glob(".thing*gone*")]


def test_many_young_artifacts_stay(tmp_path: Path) -> None:
    """However many there are, what was used within a day stays: another process may be at work with it."""
    places = [use(tmp_path, key, 0.9) for key in "0123456789"]
    assert prune(tmp_path, "thing") == []
    assert all(place.is_dir() for place in places)


def test_use_makes_an_artifact_young(tmp_path: Path) -> None:
    """An artifact that is obtained again is as good as new."""
    places = [use(tmp_path, key, days) for key, days in zip("abcdef", range(20, 14, -1), strict=True)]
    assert obtain(tmp_path, "thing", "a" * 16, lambda _: None) == places[0]
    prune(tmp_path, "thing")
    assert [place.is_dir() for place in places] == [True, False, False, True, True, True]


def test_what_somebody_holds_is_not_removed(tmp_path: Path) -> None:
    """A held artifact stays, however old, and goes when it is let go."""
    places = [use(tmp_path, key, days) for key, days in zip("abcde", range(20, 15, -1), strict=True)]
    held = hold(places[0])
    assert prune(tmp_path, "thing") == []
    assert (places[0] / "file").read_text() == "a"
    os.close(held)
    assert prune(tmp_path, "thing") == [places[0].name]


def test_what_is_removed_meanwhile_is_made_again(tmp_path: Path) -> None:
    """While a pruner has an artifact's lock, a user waits for it and then makes the artifact again."""
    place = use(tmp_path, "a", 9)
    lock = os.open(tmp_path / f".{place.name}.lock", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    waits, made = threading.Event(), list[Path]()
    user = threading.Thread(
        target=lambda: obtain(tmp_path, "thing", "a" * 16, made.append, waits.set), daemon=True
    )
    user.start()
    assert waits.wait(60)
    shutil.rmtree(place)
    os.close(lock)
    user.join(60)
    assert len(made) == 1
    assert place.is_dir()


def test_what_a_killed_pruner_left_goes(tmp_path: Path) -> None:
    """A folder on its way out is finished by the next pruner."""
    trash = tmp_path / f".thing-{'a' * 16}.gone-1234"
    trash.mkdir()
    prune(tmp_path, "thing")
    assert not trash.exists()
