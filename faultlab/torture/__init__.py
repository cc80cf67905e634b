"""Torture: a Slurm on real nodes with jobs all the time, while administrators act and parts fail at random.

`python -m faultlab.torture --minutes 45 --seed 1` installs the charts on nodes of kubebox, and goes through
the actions of the seed while jobs are submitted. Then everything is repaired, and it is checked that no job
was lost, that the operator has stopped writing, and that nothing was left behind.

    schedule     which actions, on what, when and for how long: a function of the seed; pure
    submissions  which jobs are submitted, and what became of each by its records; pure
    stage        the cluster under test: processes, pods, nodes, and what accounting says
    keys         the keys of the daemons, rotated step by step
    perform      carries out the actions             netcut      cuts the operator off from slurmrestd
    session      one run from installation to report
    assess       what is wrong after a run; pure     timeline    the report; pure
"""
