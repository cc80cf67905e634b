"""What the reconcilers of slurmctld, slurmdbd, slurmrestd and login pods have in common.

Who may come in: the four controllers beside this package. Each of them says which objects concern it and
calls `objects` for what should exist; all else is here: `contents` reads what a custom resource refers to,
`children` brings the cluster to the desired state and tells people about it, `rollout` judges how far a
workload has come, `effects` says what a changed configuration led to, `verdict` turns all of that into
conditions. `engine` puts these in order.
"""
