"""What the reconcilers of slurmctld, slurmdbd, slurmrestd and login pods have in common.

Each of these four controllers defines which objects it watches and calls `objects` for the desired state.
Everything else is here: `children` applies the desired state and records Events; in `decide`, which is pure,
`rollout` determines the progress of a workload, `effects` reports what a changed configuration led to, and
`verdict` turns all of that into conditions. `reconcile` calls these in order. Only controllers import this
package.
"""
