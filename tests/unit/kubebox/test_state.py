from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from kubebox import BoxError
from kubebox.procs import ProcessId
from kubebox.state import Layout, Record, claim, discard, is_live, layouts, state_root, sweep

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return state_root({"KUBEBOX_STATE_HOME": str(tmp_path)})


def a_record(**changes: object) -> Record:
    values: dict[str, object] = {
        "name": "a",
        "server": "https://127.0.0.1:1",
        "etcd": "http://127.0.0.1:2",
        "version": "v1.36.2",
        "ready": True,
        "created": 1.5,
        "spec": {"fake_nodes": 3},
        "supervisor": ProcessId(10, 11),
        "owner": ProcessId(12, 13),
        "processes": {"etcd": ProcessId(14, 15)},
        "ports": {"etcd": 2},
    }
    return Record(**{**values, **changes})  # type: ignore[arg-type]  # a table of mixed values


@pytest.mark.parametrize("owner", [None, ProcessId(12, 13)])
def test_record_is_read_as_written(tmp_path: Path, owner: ProcessId | None) -> None:
    """A box's record survives the way to disk and back."""
    record = a_record(owner=owner)
    record.write(tmp_path / "box.json")
    assert Record.read(tmp_path / "box.json") == record


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"name": 1}', "null", "{"])
def test_broken_record_is_named(tmp_path: Path, text: str) -> None:
    """A record that cannot be used is an error that names the file, not a traceback."""
    path = tmp_path / "box.json"
    path.write_text(text)
    with pytest.raises(BoxError, match=str(path)):
        Record.read(path)


def test_missing_record_is_named(tmp_path: Path) -> None:
    """A box without a record is starting or gone, and the error says so."""
    with pytest.raises(BoxError, match="does not exist"):
        Record.read(tmp_path / "box.json")


def test_root_is_private(root: Path) -> None:
    """The folder of all boxes is readable by its owner only, because admin keys lie in it."""
    assert root.stat().st_mode & 0o777 == 0o700


def test_root_open_to_others_is_refused(root: Path) -> None:
    """A folder that somebody else could have prepared is not used."""
    root.chmod(0o755)
    with pytest.raises(BoxError, match="KUBEBOX_STATE_HOME"):
        state_root({"KUBEBOX_STATE_HOME": str(root.parent)})


def test_root_behind_a_link_is_refused(tmp_path: Path) -> None:
    """A link in the place of the folder is not followed."""
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / f"kubebox-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BoxError, match="no private folder"):
        state_root({"KUBEBOX_STATE_HOME": str(tmp_path)})


def test_file_in_the_place_of_the_root_is_refused(tmp_path: Path) -> None:
    """A file with the folder's name is an error that names it and the way out."""
    (tmp_path / f"kubebox-{os.getuid()}").touch()
    with pytest.raises(BoxError, match=r"no private folder.*KUBEBOX_STATE_HOME"):
        state_root({"KUBEBOX_STATE_HOME": str(tmp_path)})


def test_root_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    """A chosen place that is no folder is named with what to set instead."""
    (tmp_path / "file").touch()
    with pytest.raises(BoxError, match=rf"{tmp_path}/file.*set KUBEBOX_STATE_HOME"):
        state_root({"KUBEBOX_STATE_HOME": str(tmp_path / "file")})


def test_relative_root_is_one_place(tmp_path: Path) -> None:
    """A relative choice counts from the caller's folder, also for a supervisor that works elsewhere."""
    found = state_root({"KUBEBOX_STATE_HOME": os.path.relpath(tmp_path)})
    assert found.is_absolute()
    assert found.samefile(tmp_path / f"kubebox-{os.getuid()}")


def test_stray_file_is_no_box(root: Path) -> None:
    """A file among the boxes is neither listed nor removed."""
    (root / "notes").touch()
    assert layouts(root) == []
    assert sweep(root) == []
    assert (root / "notes").exists()


def test_claimed_box_is_live_until_its_lock_is_dropped(root: Path) -> None:
    """A box lives exactly as long as somebody holds its lock."""
    layout, lock = claim(root, "a")
    assert is_live(layout)
    assert sweep(root) == []
    os.close(lock)
    assert not is_live(layout)
    assert sweep(root) == ["a"]
    assert layouts(root) == []


def test_name_of_a_live_box_is_taken(root: Path) -> None:
    """A second box of the same name is refused with the way out."""
    _, lock = claim(root, "a")
    with pytest.raises(BoxError, match="kubebox down a"):
        claim(root, "a")
    os.close(lock)


def test_name_of_a_dead_box_is_free(root: Path) -> None:
    """What a crash left does not block its name."""
    layout, lock = claim(root, "a")
    (layout.folder / "leftover").touch()
    os.close(lock)
    again, lock = claim(root, "a")
    assert not (again.folder / "leftover").exists()
    os.close(lock)


def test_unnamed_boxes_get_different_names(root: Path) -> None:
    """Boxes without a name never collide."""
    claims = [claim(root, None) for _ in range(20)]
    assert len({layout.name for layout, _ in claims}) == 20
    for _, lock in claims:
        os.close(lock)


def test_sweep_spares_a_reused_pid(root: Path) -> None:
    """Cleaning up after a crash signals no process that merely has a recorded pid."""
    layout, lock = claim(root, "a")
    innocent = ProcessId.of(os.getpid())
    assert innocent is not None
    record = a_record(processes={"etcd": ProcessId(innocent.pid, innocent.started + 1)})
    record.write(layout.record)
    os.close(lock)
    assert sweep(root) == ["a"]
    assert innocent.alive()


def test_discarding_twice_is_harmless(root: Path) -> None:
    """A folder may be removed by its supervisor and by a sweeper at the same time."""
    layout = Layout(root / "a")
    layout.folder.mkdir()
    discard(layout.folder)
    discard(layout.folder)
    assert list(root.iterdir()) == []
