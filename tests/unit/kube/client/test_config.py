"""Where the configuration is looked for, how files are merged, and what a pod finds mounted."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from slurm_operator.kube.client.config import in_cluster_config, load_config
from slurm_operator.kube.errors import ConfigError
from tests.support.kube.kubeconfig_files import POD, SERVER, authorization, load, service_account, write

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kube.certificates import Pki


def test_explicit_path_wins_over_the_environment(tmp_path: Path) -> None:
    """A path given by the caller is used whatever $KUBECONFIG says."""
    given = write(tmp_path / "given", cluster={"server": "https://given:1"})
    other = write(tmp_path / "other", cluster={"server": "https://other:1"})
    assert load(given, KUBECONFIG=str(other)).server == "https://given:1"


def test_environment_wins_over_the_service_account(tmp_path: Path) -> None:
    """$KUBECONFIG is preferred to the in-cluster service account."""
    path = write(tmp_path / "config")
    env = {"KUBECONFIG": str(path), "KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    assert load_config(env=env).server == SERVER


def test_service_account_wins_over_the_home_directory(tmp_path: Path, pki: Pki) -> None:
    """Inside a pod the service account is used even when a home kubeconfig exists."""
    (tmp_path / ".kube").mkdir()
    write(tmp_path / ".kube" / "config")
    account = service_account(tmp_path, pki)
    env = {"HOME": str(tmp_path), "KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    assert load_config(env=env, service_account=account).server == "https://10.96.0.1:443"


def test_home_directory_is_the_last_resort(tmp_path: Path) -> None:
    """Without anything else, ~/.kube/config is read."""
    (tmp_path / ".kube").mkdir()
    write(tmp_path / ".kube" / "config")
    assert load_config(env={"HOME": str(tmp_path)}).server == SERVER


def test_nothing_found_names_every_place(tmp_path: Path) -> None:
    """When there is no configuration at all, the error says where it was looked for and what to do."""
    with pytest.raises(
        ConfigError, match=r"KUBECONFIG.*not a pod.*\.kube/config does not exist.*--kubeconfig"
    ):
        load_config(env={"HOME": str(tmp_path)})


def test_first_file_wins_and_missing_files_are_skipped(tmp_path: Path) -> None:
    """In a $KUBECONFIG list the first file that names something wins, and absent files do not matter."""
    first = write(tmp_path / "first", cluster={"server": "https://first:1"}, users=[])
    second = write(tmp_path / "second", cluster={"server": "https://second:1"}, user={"username": "u"})
    listed = os.pathsep.join([str(tmp_path / "absent"), str(first), "", str(second)])
    assert load_config(env={"KUBECONFIG": listed}).server == "https://first:1"


async def test_sections_of_different_files_combine(tmp_path: Path) -> None:
    """A context of one file may use the cluster of a second and the user of a third."""
    context = tmp_path / "context"
    context.write_text(
        "contexts: [{name: c, context: {cluster: k, user: u, namespace: ns}}]\ncurrent-context: c\n",
        encoding="utf-8",
    )
    (tmp_path / "cluster").write_text(
        f"clusters: [{{name: k, cluster: {{server: '{SERVER}'}}}}]\n", encoding="utf-8"
    )
    (tmp_path / "user").write_text("users: [{name: u, user: {token: t0}}]\n", encoding="utf-8")
    listed = os.pathsep.join(str(tmp_path / name) for name in ("context", "cluster", "user"))
    config = load_config(env={"KUBECONFIG": listed})
    assert (config.server, config.namespace, await authorization(config)) == (SERVER, "ns", "Bearer t0")


async def test_relative_paths_belong_to_the_file_that_wrote_them(tmp_path: Path, pki: Pki) -> None:
    """A relative CA or token path is resolved against its own kubeconfig, not the working directory."""
    folder = tmp_path / "deep"
    folder.mkdir()
    (folder / "ca.pem").write_bytes(pki.ca)
    (folder / "token").write_text("from-file\n", encoding="utf-8")
    path = write(folder / "config", cluster={"certificate-authority": "ca.pem"}, user={"tokenFile": "token"})
    config = load(path)
    assert config.ssl is not None
    assert len(config.ssl.get_ca_certs()) == 1
    assert await authorization(config) == "Bearer from-file"


def test_context_argument_beats_current_context(tmp_path: Path) -> None:
    """The caller's context is used instead of the file's current one."""
    path = write(
        tmp_path / "config",
        name="a",
        clusters=[{"name": n, "cluster": {"server": f"https://{n}:1"}} for n in ("a", "b")],
        contexts=[{"name": n, "context": {"cluster": n}} for n in ("a", "b")],
    )
    assert load(path, "b").server == "https://b:1"
    assert load(path).server == "https://a:1"


async def test_in_cluster(tmp_path: Path, pki: Pki) -> None:
    """In a pod the mounted token, authority and namespace are used."""
    config = in_cluster_config(env=POD, service_account=service_account(tmp_path, pki))
    assert (config.server, config.namespace) == ("https://10.96.0.1:443", "slinky")
    assert config.ssl is not None
    assert len(config.ssl.get_ca_certs()) == 1
    assert await authorization(config) == "Bearer pod-token"


def test_in_cluster_ipv6_and_no_namespace(tmp_path: Path, pki: Pki) -> None:
    """An IPv6 service address is bracketed, and a missing namespace file means default."""
    account = service_account(tmp_path, pki)
    (account / "namespace").unlink()
    config = in_cluster_config(env=POD | {"KUBERNETES_SERVICE_HOST": "fd00::1"}, service_account=account)
    assert (config.server, config.namespace) == ("https://[fd00::1]:443", "default")


@pytest.mark.parametrize("missing", ["token", "ca.crt"])
def test_in_cluster_files_missing(tmp_path: Path, pki: Pki, missing: str) -> None:
    """A pod without its service account files is told which file and how to get it."""
    account = service_account(tmp_path, pki)
    (account / missing).unlink()
    with pytest.raises(ConfigError, match=rf"{missing}: no such file; .*automountServiceAccountToken"):
        in_cluster_config(env=POD, service_account=account)


@pytest.mark.parametrize("missing", sorted(POD))
def test_in_cluster_environment_missing(tmp_path: Path, pki: Pki, missing: str) -> None:
    """Without the service variables the error names the one that is missing."""
    env = {key: value for key, value in POD.items() if key != missing}
    with pytest.raises(ConfigError, match=rf"\${missing} is not set"):
        in_cluster_config(env=env, service_account=service_account(tmp_path, pki))
