"""Every property of every CRD: changed, waited for, changed back, and compared with the start.

The objects are those of a scenario, one of each kind. A property is given another value (values.py). It is
either refused, with the field's path, or accepted; then the operator is given time until it writes no more,
and other objects must have changed, or the status of the object itself. Properties that are used later or
not at all have to be listed, with the reason: no effect is a failure for all others, and an effect is one for
those.

After the change back, all objects must be as at the start, but for their history (ControllerRevisions,
ReplicaSets, counts of revisions) and for what the kubelets did. An object that is never at rest again, or not
restored, is a failure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from faultlab.cluster import ApiError
from faultlab.errors import FaultlabError, OutOfTimeError
from faultlab.run import Run
from faultlab.state import differences
from faultlab.values import Property, names_field, other_values, properties, restoring, value_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from faultlab.cluster import Json
    from faultlab.run import Bench
    from faultlab.scenario import Scenario

_CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_QUIET: Final = 2.5
_HISTORY: Final = ("ControllerRevision/", "ReplicaSet/", "Slurm")
_COUNTED: Final = ("deployment.kubernetes.io/revision", "status.collisionCount", "observedGeneration")
_REFUSED: Final = (400, 403, 422)
PASSED: Final = ("changed", "reported", "refused", "no effect, as listed")
"""Another object changed; only the status of the object itself; admission refused it; a known exception."""


@dataclass
class Result:
    """What came of one property."""

    name: str
    verdict: str
    """One of `PASSED`, or a failure.

    Failures are `no effect`, `effect, not as listed`, `refused without its path`, `stuck` and `not restored`.
    """
    value: Any = None
    detail: str = ""

    @property
    def failed(self) -> bool:
        """Whether it is a finding."""
        return self.verdict not in PASSED


class PropertyRun(Run):
    """Goes through the properties of all kinds of a scenario, or through a share of them."""

    def __init__(
        self,
        bench: Bench,
        scenario: Scenario,
        wanted: str,
        tell: Callable[[Result], None],
        share: tuple[int, int] = (0, 1),
        without_effect: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(bench, scenario)
        self._without_effect = without_effect or {}
        self._share = share
        """Which of how many parts of the properties: each part has a namespace and an operator of its own."""
        self._wanted = wanted
        self._tell = tell
        self.results: list[Result] = []

    async def _play(self) -> None:
        for step in self._scenario.setup:
            await self._step(step)
        await self._settled(_QUIET)
        self._director.begin()
        start = await self._state()
        number, parts = self._share
        wanted = [found for found in await self._properties() if self._wanted in str(found[0])]
        for one, name in wanted[number::parts]:
            result = await self._try(one, name, start)
            self.results.append(result)
            self._tell(result)
            if result.verdict in ("stuck", "not restored"):
                # What is broken now is not to be blamed on the next property.
                start = await self._state()

    async def _properties(self) -> list[tuple[Property, str]]:
        objects = {item["kind"]: item["metadata"]["name"] for item in self._scenario.objects}
        found = (await self._bench.lab.kube.request("GET", _CRDS))["items"]
        result: list[tuple[Property, str]] = []
        for crd in found:
            kind = crd["spec"]["names"]["kind"]
            for version in crd["spec"]["versions"]:
                if kind in objects and version["storage"]:
                    spec = version["schema"]["openAPIV3Schema"]["properties"].get("spec", {})
                    result += [(one, objects[kind]) for one in properties(kind, spec)]
        return result

    async def _try(self, one: Property, name: str, start: Json) -> Result:
        kube = self._bench.lab.kube
        live = await kube.get(one.kind, self._namespace, name)
        if live is None:
            raise FaultlabError(f"{one.kind} {name} is gone")
        before = (await self._state())[f"{one.kind}/{name}"].get("status", {})
        refusal, value = "", None
        for value in other_values(one.schema, one.path, value_of(live["spec"], one.path)):
            try:
                await kube.patch(one.kind, self._namespace, name, one.patch(live["spec"], value))
            except ApiError as error:
                if error.status not in _REFUSED:
                    raise
                refusal = error.message
                continue
            return await self._effect(one, value, live, before, start)
        named = names_field(refusal, one.path)
        return Result(str(one), "refused" if named else "refused without its path", value, refusal[:300])

    async def _effect(self, one: Property, value: Any, live: Json, before: Json, start: Json) -> Result:
        kube, what, name = self._bench.lab.kube, str(one), live["metadata"]["name"]
        try:
            await self._settled(_QUIET)
            title = f"{one.kind}/{name}"
            await self._until(lambda: self._behind(title), 45.0 * self._bench.patience, pause=0.5)
            found = await self._state()
            changed = differences(_others(start, title), _others(found, title))
            reported = differences(before, found[title].get("status", {}))
            stuck = ""
        except OutOfTimeError as error:
            changed, reported, stuck = {}, {}, str(error)
        try:
            await kube.patch(one.kind, self._namespace, name, restoring(live["spec"], one.path, value))
        except ApiError as error:
            return Result(what, "not restored", value, f"the change back is refused: {error.message[:300]}")
        left: dict[str, str] = {}

        async def restored() -> str:
            nonlocal left
            left = differences(_compared(start), _compared(await self._state()))
            return "; ".join(f"{path}: {text}" for path, text in left.items())

        try:
            await self._settled(_QUIET)
            await self._until(restored, 45.0 * self._bench.patience, pause=0.5)
        except OutOfTimeError as error:
            return Result(what, "not restored", value, str(error)[:1500])
        if stuck:
            return Result(what, "stuck", value, stuck[:500])
        return effect(what, value, changed, reported, self._without_effect.get(what, ""))

    async def _behind(self, title: str) -> str:
        """Return what is missing until the status belongs to the object as it is."""
        status = (await self._state())[title].get("status", {})
        behind = status.get("observedGeneration") == "behind"
        return f"the status of {title} is behind its object" if behind else ""


def effect(
    name: str, value: Any, changed: Mapping[str, str], reported: Mapping[str, str], reason: str
) -> Result:
    """Return what came of a property that could be changed back; `reason` is why it may have no effect."""
    if not changed and not reported:
        return Result(name, "no effect, as listed" if reason else "no effect", value, reason)
    paths = sorted({path.partition(".")[0] for path in changed})
    conditions = (f"{path}: {text}" for path, text in reported.items())
    verdict = "effect, not as listed" if reason else "changed" if changed else "reported"
    return Result(name, verdict, value, ", ".join([*paths, *conditions]))


def not_properties(listed: Iterable[str], wanted: str, results: Iterable[Result]) -> list[str]:
    """Return the listed names that a run of all properties with `wanted` in their names did not meet."""
    met = {result.name for result in results}
    return sorted(name for name in listed if wanted in name and name not in met)


def _compared(state: Json) -> Json:
    return {title: _stable(item) for title, item in state.items() if not title.startswith(_HISTORY)}


def _stable(item: Json) -> Json:
    """Return an object without what only counts revisions, and without the state of its pods."""
    meta = {key: value for key, value in item["metadata"].items() if key != "annotations"}
    notes = item["metadata"].get("annotations", {})
    meta["annotations"] = {key: value for key, value in notes.items() if key not in _COUNTED}
    kept = {key: value for key, value in item.items() if key not in ("status", "metadata")}
    conditions = item.get("status", {}).get("conditions", {})
    states = {name: one.get("status") for name, one in conditions.items() if name != "Progressing"}
    return {**kept, "metadata": meta, "conditions": states}


def _others(state: Json, title: str) -> Json:
    return {other: item for other, item in _compared(state).items() if other != title}
