"""The read-only status API of the manager: what it knows, what it waits for and what it did, as JSON.

`slurm_operator.status_rows` has the structs that are sent. `worker_rows` and `cluster_rows` are pure: they
make rows of Kubernetes objects, Slurm views and the last plan of a NodeSet. `board` keeps the rows of the
whole operator and finds out which of them have changed. `decision_log` remembers what was decided. `viewers`
decides what a client may see, `job_rows` asks Slurm for the details of jobs, and `status_server` serves all
of it.

Nothing here writes to Kubernetes or Slurm, and no reconcile waits for anything here.
"""
