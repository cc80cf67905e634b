"""What 100 Slurm clusters under one operator cost, and what they notice of each other.

Each namespace has a Controller and a RestApi that the operator runs, and a NodeSet of 50 workers. The nodes
are those of `bench.nodeset`; the Slurm of all clusters is one process (`bench.crowd --shared`). `python -m
bench.clusters` takes all figures in one run; `__main__` says which.

    figures     what each figure is, and its goal
    stage       the namespaces: the objects a user makes, and the workers as they come and go
    phases      what is measured
"""
