"""Install and upgrade from the artifacts of a release: `python -m scripts.release.check [--only PHASE]`.

    install   a cluster whose nodes hold no image of ours; a registry gets the images and the charts; helm
              installs all three charts from there; a job runs on every worker
    import    the same from files, with the archives imported into the nodes: no registry is used
    upgrade   the charts and the image of an earlier commit are installed in the same way, jobs are started,
              operator, CRDs and Slurm chart are upgraded, the operator is rolled back and upgraded again:
              no pod of Slurm restarts, and every job ends well

Of the tree only kubebox is used, and for the upgrade the earlier commit, which the clone must have.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
import urllib.parse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kubebox import Box, BoxSpec
from kubebox.console import Stopwatch
from kubebox.errors import BoxError, KubeboxError, ToolError
from scripts.demo_cluster import Cluster, await_slurm, troubles
from scripts.release import build, former
from scripts.release.jobs import LastingJob, LostJobError, until
from scripts.release.registry import local_registry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kubebox.slurm.packages import Progress

PHASES = ("install", "import", "upgrade")
WORKERS = 2
PREFIX = "slurm"
_LIMIT = "--timeout=600s"
_SECONDS = 720.0
# Whatever a new operator does to pods, it does within its first reconciles.
_SETTLE_SECONDS = 20.0
_OPERATOR = "certManager.enabled=false"
# Values of a small cluster; nodes of kubebox have no control groups of version 2 to lend.
VALUES: dict[str, Any] = {
    "asciiArt": False,
    "clusterName": "release",
    "controller": {
        "persistence": {"resources": {"requests": {"storage": "64Mi"}}},
        "extraConfMap": {"ProctrackType": "proctrack/linuxproc", "TaskPlugin": "task/none"},
    },
    "configFiles": {"cgroup.conf": "CgroupPlugin=disabled\n"},
    "loginsets": {"users": {"service": {"spec": {"type": "ClusterIP"}}}},
    "nodesets": {"demo": {"replicas": WORKERS}},
    "partitions": {"all": {"enabled": True}},
}
_ACCOUNTING = {"accounting": {"enabled": True}, "mariadb": {"enabled": True, "size": "512Mi"}}


@dataclass(frozen=True)
class Scene:
    """A cluster with a registry, and the release to install."""

    cluster: Cluster
    release: Path
    registry: str
    home: Path
    say: Progress

    def push_images(self, *archives: Path) -> None:
        """Copy images into the registry, as a user does."""
        push = [sys.executable, str(self.release / build.PUSH), "--plain-http", f"{self.registry}/{PREFIX}"]
        done = subprocess.run([*push, *map(str, archives)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BoxError(f"{build.PUSH}: {done.stderr.strip()}")

    def push_charts(self) -> None:
        """Copy the packaged charts into the registry."""
        for chart in sorted(self.release.glob("*.tgz")):
            where = f"oci://{self.registry}/charts"
            self.cluster.run("helm", "push", str(chart), where, "--plain-http", timeout=_SECONDS)

    def chart(self, name: str) -> tuple[str, ...]:
        """Return the arguments that name a chart of the release, in the registry or as a file."""
        (archive,) = (
            path for path in self.release.glob(f"{name}-*.tgz") if path.name[len(name) + 1].isdigit()
        )
        if not self.registry:
            return (str(archive),)
        version = archive.name.removeprefix(f"{name}-").removesuffix(".tgz")
        return f"oci://{self.registry}/charts/{name}", "--version", version, "--plain-http"

    def helm(self, release: str, chart: tuple[str, ...], namespace: str, *options: str) -> None:
        """Install or upgrade a release and wait until helm says that it is done."""
        where = ("--namespace", namespace, "--create-namespace", _LIMIT)
        command = ("upgrade", "--install", release, *chart, *where, *options)
        self.cluster.run("helm", *command, timeout=_SECONDS)

    def values(self, name: str, values: dict[str, Any]) -> tuple[str, str]:
        """Write a values file and return the option that names it."""
        path = self.home / f"{name}.json"
        path.write_text(json.dumps(values), encoding="utf-8")
        return "--values", str(path)

    def install_operator(self) -> None:
        """Install or upgrade CRDs and operator from the release."""
        self.helm("slurm-operator-crds", self.chart("slurm-operator-crds"), "slinky")
        # Images that were imported have names with tags, and none with digests.
        imported = "image.repository=slurm-operator,image.digest=null"
        image = f"image.registry={self.registry}/{PREFIX}" if self.registry else imported
        self.helm(
            "slurm-operator",
            self.chart("slurm-operator"),
            "slinky",
            "--wait",
            "--set",
            f"{_OPERATOR},{image}",
        )

    def pods(self) -> dict[str, Any]:
        """Return who each pod of Slurm is, and how often its containers were restarted."""
        return {
            pod["metadata"]["name"]: (
                pod["metadata"]["uid"],
                {one["name"]: one["restartCount"] for one in pod["status"].get("containerStatuses", ())},
            )
            for pod in self.cluster.get("pods")["items"]
        }


@contextlib.contextmanager
def scene(release: Path, say: Progress, images: tuple[str, ...] = ()) -> Iterator[Scene]:
    """Start a cluster, and a registry that its nodes pull from unless they hold the images."""
    spec = BoxSpec(
        nodes=WORKERS,
        images=images,
        pulls=not images,
        controller_manager=True,
        scheduler=True,
        ready_timeout=600.0,
    )
    with (
        tempfile.TemporaryDirectory(prefix="release-check-") as folder,
        Box.up(spec, progress=say) as box,
    ):
        home, host = Path(folder), urllib.parse.urlsplit(box.server).hostname or ""
        if images:
            yield Scene(Cluster(box.kubeconfig, home, say), release, "", home, say)
            return
        with local_registry(host, home / "registry", say) as address:
            box.trust_registry(address)
            cluster = Cluster(box.kubeconfig, home, say)
            yield Scene(cluster, release, address, home, say)


def check_install(found: Scene) -> None:
    """Install everything from the registry, and run a job on every worker."""
    say, began = found.say, time.monotonic()
    archives = sorted(found.release.glob("*.oci.tar"))
    found.push_images(*archives)
    found.push_charts()
    say(f"images and charts are in the registry {found.registry}")
    found.install_operator()
    say("the operator is installed from the registry")
    registry = {"imageRegistry": f"{found.registry}/{PREFIX}"}
    values = found.values("values", {**VALUES, **_ACCOUNTING, **registry})
    found.helm("slurm", found.chart("slurm"), found.cluster.namespace, *values)
    await_slurm(found.cluster, say, WORKERS)
    _run_everywhere(found)
    say(f"a job has run on {WORKERS} workers, {time.monotonic() - began:.0f} s after the first push")
    _check_images(found)
    _check_manifest(found)


def check_import(found: Scene) -> None:
    """Install everything from files on nodes that have imported the archives, and run a job."""
    found.install_operator()
    imported = {"imageRegistry": "docker.io/library", "imageDigests": None}
    values = found.values("values", {**VALUES, **_ACCOUNTING, **imported})
    found.helm("slurm", found.chart("slurm"), found.cluster.namespace, *values)
    await_slurm(found.cluster, found.say, WORKERS)
    _run_everywhere(found)
    found.say(f"without a registry: a job has run on {WORKERS} workers")


def _run_everywhere(found: Scene) -> None:
    command = ("timeout", "60", "srun", "--immediate=20", f"--nodes={WORKERS}", "--chdir=/tmp", "hostname")
    until(
        lambda: len(set(found.cluster.slurm(*command).split())) == WORKERS, f"a job runs on {WORKERS} workers"
    )


def _check_images(found: Scene) -> None:
    """Check that every container runs an image of the release, by its digest."""
    listed = json.loads((found.release / "images.json").read_text(encoding="utf-8"))
    known = {f"{found.registry}/{PREFIX}/{image['name']}@{image['digest']}" for image in listed}
    used: set[str] = set()
    for namespace in ("slinky", found.cluster.namespace):
        for pod in found.cluster.get("pods", "--namespace", namespace)["items"]:
            used |= {one["image"] for one in _containers(pod["spec"])}
    if used != known:
        raise BoxError(f"containers run {sorted(used - known)}, and none runs {sorted(known - used)}")
    found.say(f"all containers run images of the release, by digest: {len(known)} images")


def _containers(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return [*spec["containers"], *spec.get("initContainers", ())]


def _check_manifest(found: Scene) -> None:
    """Check that the API server takes install.yaml, except for what is cert-manager's."""
    text = (found.release / "install.yaml").read_text(encoding="utf-8")
    documents = [part for part in text.split("\n---\n") if "apiVersion: cert-manager.io/" not in part]
    apply = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "--filename=-")
    found.cluster.run("kubectl", *apply, stdin="\n---\n".join(documents))
    found.say("the API server takes install.yaml")


def check_upgrade(found: Scene, commit: str) -> None:
    """Upgrade from an earlier commit and back, while jobs run."""
    say = found.say
    old = former.artifacts(commit, found.home, say)
    found.push_images(old.archive, *sorted(found.release.glob("*.oci.tar")))
    found.push_charts()
    values = found.values("values", {**VALUES, **_named_images(found)})
    image = f"repository={found.registry}/{PREFIX}/{old.image},tag={old.tag}"
    pinned = ",".join(f"{part}.image.{item}" for part in ("operator", "webhook") for item in image.split(","))
    found.helm("slurm-operator-crds", (str(old.charts / "slurm-operator-crds"),), "slinky")
    chart = (str(old.charts / "slurm-operator"),)
    found.helm("slurm-operator", chart, "slinky", "--wait", "--set", f"{_OPERATOR},{pinned}")
    found.helm("slurm", (str(old.charts / "slurm"),), found.cluster.namespace, *values)
    await_slurm(found.cluster, say, WORKERS)
    say(f"{commit} is installed")
    jobs = [
        LastingJob.start(found.cluster, f"slurm-worker-demo-{number}", f"demo-{number}")
        for number in range(WORKERS)
    ]
    running = found.pods()
    for what in ("upgrade", "rollback", "upgrade"):
        if what == "rollback":
            back = ("rollback", "slurm-operator", "1", "--namespace", "slinky", "--wait", _LIMIT)
            found.cluster.run("helm", *back, timeout=_SECONDS)
        else:
            found.install_operator()
            found.helm("slurm", found.chart("slurm"), found.cluster.namespace, *values)
        _settled(found)
        for job in jobs:
            job.check()
        if (now := found.pods()) != running:
            raise LostJobError(f"pods were {running} before the {what} and are {now}")
        say(f"{what} of the operator: {len(jobs)} jobs run on, no pod of Slurm has restarted")
    for job in jobs:
        job.end()
    _run_everywhere(found)
    say(f"{len(jobs)} jobs have ended well, 0 were lost; a new one has run on {WORKERS} workers")


def _named_images(found: Scene) -> dict[str, Any]:
    """Return values that name the Slurm images one by one, as charts without `imageRegistry` need it."""
    listed = json.loads((found.release / "images.json").read_text(encoding="utf-8"))

    def image(name: str) -> dict[str, Any]:
        (one,) = (each for each in listed if each["name"] == name)
        return {"image": {"repository": f"{found.registry}/{PREFIX}/{name}", "digest": one["digest"]}}

    return {
        "controller": {
            **VALUES["controller"],
            "slurmctld": image("slurmctld"),
            "reconfigure": image("slurmctld"),
            "logfile": image("tools"),
        },
        "restapi": {"slurmrestd": image("slurmrestd")},
        "loginsetDefaults": {"login": image("login"), "initconf": image("tools")},
        "nodesetDefaults": {"slurmd": image("slurmd"), "logfile": image("tools")},
    }


def _settled(found: Scene) -> None:
    """Wait until the operator that was just installed has looked at every object and sent what it wanted."""

    def observed() -> bool:
        items = found.cluster.get("controllers,loginsets,restapis,nodesets")["items"]
        return all(
            item.get("status", {}).get("observedGeneration", item["metadata"]["generation"])
            == item["metadata"]["generation"]
            for item in items
        )

    until(observed, "the operator has seen the newest objects")
    await_slurm(found.cluster, lambda _line: None, WORKERS)
    before = time.monotonic()
    while time.monotonic() - before < _SETTLE_SECONDS:
        await_slurm(found.cluster, lambda _line: None, WORKERS)
        time.sleep(2)


def verify_checksums(release: Path) -> None:
    """Raise an error unless every file of a release has the checksum that SHA256SUMS says."""
    if build.checksums(release) != (release / build.SUMS).read_text(encoding="utf-8"):
        raise ToolError(f"{release / build.SUMS} does not fit the files beside it: build the release again")


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--release", type=Path, default=build.ROOT / "dist" / "release", metavar="FOLDER")
    parser.add_argument("--only", choices=PHASES, help="one phase; all if not given")
    parser.add_argument("--former", default=former.COMMIT, metavar="COMMIT", help="what to upgrade from")
    options = parser.parse_args()
    say = Stopwatch(sys.stderr)
    release = options.release.absolute()
    try:
        if not (release / build.SUMS).exists():
            build.build(release, "", say)
        verify_checksums(release)
        say(f"the checksums of {release} are right")
        for phase in (options.only,) if options.only else PHASES:
            images = tuple(map(str, sorted(release.glob("*.oci.tar")))) if phase == "import" else ()
            with scene(release, say, images) as found:
                try:
                    if phase == "upgrade":
                        check_upgrade(found, options.former)
                    else:
                        (check_install if phase == "install" else check_import)(found)
                except (KubeboxError, LostJobError) as error:
                    print(f"release-check: {phase}: {error}\n{troubles(found.cluster)}", file=sys.stderr)
                    return 1
    except KubeboxError as error:
        print(f"release-check: {error}", file=sys.stderr)
        return 1
    say("release-check passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
