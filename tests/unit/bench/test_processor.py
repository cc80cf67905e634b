"""What others use: every process but ours, short ones included, and what the hypervisor withholds."""

from __future__ import annotations

import pytest

from bench.processor import OtherLoad, Process, Snapshot, load_now, other_load

US = 100


def snapshot(at: float, stolen: float = 0.0, **seconds: tuple[int, int, float]) -> Snapshot:
    """Return a moment: for each name a process ID, its parent and its seconds."""
    processes = {pid: Process(parent, name, used) for name, (pid, parent, used) in seconds.items()}
    return Snapshot(at, stolen, processes)


def test_ours_and_those_of_the_kernel_are_not_others() -> None:
    """What a benchmark starts works for it, and kernel threads work for all."""
    before = snapshot(0.0, init=(1, 0, 0.0), ours=(US, 1, 0.0), child=(101, US, 0.0), kworker=(50, 2, 0.0))
    after = snapshot(
        10.0, init=(1, 0, 0.1), ours=(US, 1, 9.0), child=(101, US, 9.0), kworker=(50, 2, 9.0), new=(9, 1, 4.0)
    )
    load = other_load(before, after, US)
    assert load.processes == pytest.approx({"init": 0.01, "new": 0.4})
    assert load.busy


def test_processes_that_end_are_counted_once() -> None:
    """The parent inherits their time: of one that ran before, only what is new counts."""
    before = snapshot(0.0, make=(10, 1, 1.0), cc1=(11, 10, 5.0))
    after = snapshot(10.0, make=(10, 1, 8.0))
    assert other_load(before, after, US).processes == pytest.approx({"make": 0.2})


def test_time_that_ours_inherit_is_ours() -> None:
    """A process that the benchmark started and waited for is no load of others, even if its parent ended."""
    before = snapshot(0.0, init=(1, 0, 0.0), ours=(US, 1, 1.0), box=(101, US, 5.0), etcd=(102, 101, 20.0))
    after = snapshot(10.0, init=(1, 0, 0.0), ours=(US, 1, 30.0))
    assert other_load(before, after, US).processes == {}


def test_a_process_that_reuses_an_id_is_another() -> None:
    """Its time begins anew."""
    before, after = snapshot(0.0, old=(10, 1, 100.0)), snapshot(10.0, new=(10, 1, 1.0))
    assert other_load(before, after, US).processes == pytest.approx({"new": 0.1})


def test_a_core_that_the_hypervisor_withholds_is_busy() -> None:
    """No process shows it, but seconds grow by it."""
    load = other_load(snapshot(0.0, 7.0), snapshot(10.0, 12.0), US)
    assert load == OtherLoad({}, 0.5)
    assert load.busy
    assert str(load) == "other processes use 0.00 cores, the hypervisor withholds 0.50"


def test_little_use_is_not_busy() -> None:
    """Any machine has some."""
    assert not OtherLoad({"sshd": 0.05, "init": 0.02}, 0.1).busy


def test_the_kernel_is_asked() -> None:
    """The names are those of real processes, and this one is not among the others."""
    load = load_now(0.01)
    assert load.stolen >= 0.0
    assert all(name and cores >= 0.0 for name, cores in load.processes.items())
