"""NodeSet: worker pods, and the promise that no job is ever lost.

    controller   one reconcile of a NodeSet, from first to last: observe, decide, act, report
    decide/      what to do, as pure functions of what was observed; no function awaits, asks the time or
                 remembers anything. `decide.plan` is the entry
    run/         observing and acting: caches, writes to Kubernetes and Slurm, status and events

What must survive a crash is in the pods, in the NodeSet's status, in the ControllerRevisions and in Slurm.
"""
