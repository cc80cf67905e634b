"""What the NodeSet controller costs at scale: a real API server with fake nodes, and a Slurm without limits.

The operator runs as the process that users run. Pods are scheduled by a real scheduler onto nodes that
`machines` plays; Slurm is played by `standin`, since no machine here could run thousands of slurmd. `python
-m bench.nodeset` takes all figures in one run; `__main__` says which.

    slurmctld   what the stand-in knows: nodes, jobs, reservations, and how a request changes them
    standin     the same over HTTP, in the shape of real answers, counting requests
    recorded    (JSON) one answer of each kind of a real slurmrestd 26.05, the mould of ours
    machines    nodes that run pods in name only
    operator    the process under test, and the figures that it and the kernel give about it
    stage       the namespace it works in: the objects a user makes, and the pods as they come and go
    phases      what is measured
"""
