"""Everything this operator knows about Slurm: its REST API, its words, its configuration files.

Who may come in: the controllers. This package has never heard of Kubernetes; a cluster is a URL and a token
here, a node is a name that Slurm uses. The promise it keeps for everybody above: a question about a node has
three answers, *known*, *absent* and *unknown*, and silence, age, haste and nonsense are all *unknown*.
"""
