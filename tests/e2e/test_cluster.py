"""A Slurm cluster that helm has just installed, and what its users do with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scripts.demo_cluster import LOGIN, NAMESPACE, OPERATOR_NAMESPACE, RELEASE

if TYPE_CHECKING:
    from tests.support.e2e.slurm_cluster import Site

CONTROLLER = "slurm-controller-0"
# Which login pod it is, and since when its container runs.
_LOGIN_SINCE = ("sh", "-c", 'hostname; cut -d" " -f22 /proc/1/stat')


def test_a_job_runs_on_all_workers_of_a_fresh_installation(site: Site) -> None:
    """What helm installs from nothing runs a job on every worker."""
    site.settled(2)
    site.run_everywhere(2)


def test_operator_passes_the_tests_of_its_chart(site: Site) -> None:
    """`helm test` reaches the operator and its webhook through their Services, and both are well."""
    said = site.cluster.run("helm", "test", "slurm-operator", "--namespace", OPERATOR_NAMESPACE)
    assert said.count("Succeeded") == 2


def test_accounting_keeps_the_record_of_a_job(site: Site) -> None:
    """The record of a job that ended is in the database, with its node and its code."""
    site.start_job("demo-1").end()


def test_users_log_in_by_ssh(site: Site) -> None:
    """A key of the LoginSet opens its pods through their Service, and Slurm's commands work there."""
    script = (
        "umask 077; cat >/tmp/key; "
        f"ssh -i /tmp/key -o StrictHostKeyChecking=no -o BatchMode=yes root@{LOGIN} sinfo --noheader "
        "--format=%P"
    )

    def session() -> bool:
        command = ("exec", "--stdin", "slurm-worker-demo-0", "--container=slurmd", "--", "sh", "-c", script)
        return site.cluster.kubectl(*command, stdin=site.ssh_key).strip() == "all*"

    site.until(session, "ssh opens a session in which sinfo works")


def test_slurmctld_reads_a_changed_configuration(site: Site) -> None:
    """A value that helm changes reaches slurmctld and login pods, without a restart and beside a job."""
    job, before = site.start_job(), site.uid(CONTROLLER)
    since = site.cluster.slurm(*_LOGIN_SINCE)
    value = "controller.extraConfMap.KillWait=37"
    site.cluster.install(RELEASE, "slurm", NAMESPACE, "--reuse-values", "--set", value)

    def so() -> bool:
        lines = site.cluster.slurm("scontrol", "show", "config").splitlines()
        return any(line.split("=")[0].strip() == "KillWait" and "37 sec" in line for line in lines)

    site.until(so, "slurmctld knows the new KillWait")
    assert site.uid(CONTROLLER) == before
    file = "/run/slurm/conf/slurm.conf"
    site.until(
        lambda: "KillWait=37" in site.cluster.slurm("cat", file), "the login pod has the new slurm.conf"
    )
    assert site.cluster.slurm(*_LOGIN_SINCE) == since, "sessions have ended for it"
    job.assert_unharmed()
    job.end()


def test_jobs_survive_the_loss_of_slurmctld(site: Site) -> None:
    """A job runs on while the pod of slurmctld is gone, and the new one knows it."""
    job, before = site.start_job(), site.uid(CONTROLLER)
    job.written_down(CONTROLLER)
    site.cluster.kubectl("delete", "pod", CONTROLLER, "--grace-period=0", "--force")
    site.ready_again(CONTROLLER, before)
    site.until(job.runs, "the new slurmctld says that the job runs")
    job.assert_unharmed()
    job.end()
    site.run_everywhere(2)
