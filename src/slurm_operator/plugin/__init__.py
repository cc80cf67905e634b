"""`kubectl slurm`: what the operator does and why, in one command.

The command runs on a user's machine with an ordinary kubeconfig. It reads the API of the manager through the
pod proxy of the API server (`manager_api`), and where the manager cannot be reached, conditions and Events
(`limited`). Both give the rows of `slurm_operator.status_rows`, from which pure functions (`render_*`) make
text.

It imports `kube`, `api` and `status_rows`, never the controllers, and loads the HTTP stack only for commands
that need it.
"""
