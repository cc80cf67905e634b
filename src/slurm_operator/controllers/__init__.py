"""The reconcilers: each observes through caches and views, decides with pure functions, and writes.

One module per controller, with a function `build(wiring)` that takes what it needs from the `Wiring` and
returns a `kube.runtime.controller.Controller`; `process.CONTROLLERS` lists them. Controllers connect
Kubernetes with Slurm: `kube` and `slurm` do not import each other, and neither imports `api`. Only `process`
imports this package. What several of them use is in `shared`.
"""
