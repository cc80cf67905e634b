"""Faults from outside, for an operator in any language: crashes at every write, stale views, lost events.

The operator under test runs as a process. It reaches kube-apiserver and slurmrestd only through proxies of
this package, which count its writes and produce the faults; kube-apiserver is a real one from kubebox. This
package knows nothing of the operator in this repository.

    writes      what a request writes, and how writes are named, numbered and sampled; pure
    faults      the faults as data, with their text form; pure
    director    which request the fault hits, and when the operator is killed
    proxy       the proxies: forward, record, and do to a request what the fault asks for
    process     the operator's process: start, kill -9, start again
    cluster     the Kubernetes of all runs: control plane, accounts, a small client
    clearing    removes what a run leaves
    kubelets    nodes that run pods in name only, and the slurmd of each worker
    volumes     a volume for each claim
    slurm       a Slurm on loopback, its jobs, and which of them were lost
    scenario    the scenario files                  state       what is compared at the end; pure
    run         one run of one scenario             suite       the runs of a scenario, and their verdicts
    properties  every property of every CRD, changed and changed back
    report      the table, the JSON file, and the command that repeats a failed run
    torture     jobs on real nodes while administrators act and parts fail, a package of its own
"""
