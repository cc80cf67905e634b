"""Everything this operator knows about Slurm: its REST API, its words, its configuration files.

All layers above may import it (see the contracts in pyproject.toml). It imports nothing of Kubernetes: a
cluster is a URL and a token here, and a node is a name that Slurm uses. Its guarantee to all callers: a
question about a node has three answers, *known*, *absent* and *unknown*, and a missing, outdated, premature
or invalid reply from Slurm is always *unknown*.

`model`, `decode`, `decide`, `conf`, `errors` and `web_token` are pure; `rest`, `watch`, `writer` and
`metrics` use the network.
"""
