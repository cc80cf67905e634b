"""What became of one pass over a NodeSet: what went wrong, and when to look again without being called.

A trouble is for people and ends up in the condition `Degraded`; an error is for the queue, which tries again
with a growing pause. Most errors are troubles, too. A conflict is none: somebody was faster, and what they
did is on its way through the caches.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from slurm_operator.controllers.workload.verdict import Cause
from slurm_operator.kube.errors import Conflict, FencedError, Forbidden, KubeError, NotFound
from slurm_operator.kube.failures import describe

if TYPE_CHECKING:
    from slurm_operator.controllers.nodeset.decisions import Hold
    from slurm_operator.objects.desired import Unbuildable

# How troubles begin that have an Event of their own.
FINALIZERS: Final = "the finalizers of NodeSet"
# How soon to look again after a conflict, if the change behind it sends no event to us.
_AFTER_CONFLICT = 1.0
_LEAST_AFTER_ERROR = 1.0


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that keeps a NodeSet from being as it should: one word, and a sentence with the fix."""

    reason: str
    message: str


@dataclass(slots=True)
class Outcome:
    """Collects what one pass leaves behind."""

    troubles: dict[Trouble, None] = field(default_factory=dict)
    errors: list[KubeError] = field(default_factory=list)
    looks: list[float] = field(default_factory=list)
    budget: Hold | None = None
    """Why the budget of the workers does not protect them, if so."""
    certain: bool = True
    """Nothing is missing that decides how many pods there should be, and which."""

    def trouble(self, reason: str, message: str) -> None:
        """Note something that people should hear of."""
        self.troubles[Trouble(str(reason), message)] = None

    def unbuildable(self, error: Unbuildable) -> None:
        """Note why something could not be built."""
        for problem in error.problems:
            self.trouble(problem.reason.value, f"{problem.field}: {problem.message}")

    def failed(self, what: str, error: KubeError) -> None:
        """Note that a request failed; `what` names the object and what was wanted of it."""
        if isinstance(error, FencedError):
            raise error
        if isinstance(error, NotFound | Conflict):
            self.looks.append(_AFTER_CONFLICT)
            return
        self.errors.append(error)
        if not namespace_ends(error):
            self.trouble(Cause.FAILED, f"{what}: {describe(error)}")

    def look(self, after: float) -> None:
        """Ask for another look."""
        self.looks.append(after)

    def again(self) -> float | None:
        """Return after how many seconds to look again without being called; None if nobody asked for it.

        Also after an error, beside the growing pause: one part that fails must not hold up the others.
        """
        if not self.looks:
            return None
        return max(_LEAST_AFTER_ERROR, min(self.looks)) if self.errors else min(self.looks)


def namespace_ends(error: KubeError) -> bool:
    """Tell whether something could not be made because its namespace is being deleted: nobody minds."""
    causes = error.details.get("causes", ()) if isinstance(error, Forbidden) else ()
    return any(cause.get("reason") == "NamespaceTerminating" for cause in causes)
