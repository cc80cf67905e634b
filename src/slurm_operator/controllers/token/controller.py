"""Token: a JSON web token in a Secret, renewed before it expires.

What to do is decided in `token_plan`; this module reads, writes, and reports the result.

Three things are watched besides the Tokens. The Secrets with the signing keys, each by its name: a rotated
key causes new tokens at once, and a key that was missing unblocks the Tokens that wait for it. The Secrets
created here, by their label, so that one which was deleted or edited is restored. And a Secret without our
label that has the name of ours, created by another client or by Slinky slurm-operator, by its name, as long
as it blocks a Token. However many Tokens there are, the Secrets they write to are one watch, and each
signing key is one.

A Secret is created by an apply that can only create: it carries a resourceVersion that no object has.
Afterwards each apply carries the UID of the Secret it is meant for. So if another client creates an object of
the same name between the read and the write, the API server returns a conflict, and the object is not
overwritten. Before a Secret is created, its Token is read: the deletion of the Secret, which the garbage
collector makes, can arrive before that of the Token.

A token is random, so the same decision taken twice would write twice. The answer to the last write is
therefore kept until the cache has caught up with it.
"""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from slurm_operator.api import Token, wellknown
from slurm_operator.api.reasons import Reason
from slurm_operator.api.shared import find_condition
from slurm_operator.controllers.shared.conditions import condition, condition_changed, stalled
from slurm_operator.controllers.shared.owners import OwnerGoneError, require_owner
from slurm_operator.controllers.shared.status_writer import StatusWriter
from slurm_operator.controllers.token import token_plan as plan
from slurm_operator.controllers.token.token_plan import (
    CannotIssue,
    Issue,
    Keep,
    Restore,
    TokenObservation,
    Why,
)
from slurm_operator.controllers.token.token_secret import desired, former_owners
from slurm_operator.kube.cache.referenced_objects import Referrer, enqueue_owners
from slurm_operator.kube.decide.own_writes import is_ahead
from slurm_operator.kube.errors import ApiError, Conflict, KubeError, NotFound
from slurm_operator.kube.models.kinds import Secret
from slurm_operator.kube.models.meta import Key
from slurm_operator.kube.runtime.apply import ApplyOutcome
from slurm_operator.kube.runtime.controller import Controller, Requeue
from slurm_operator.kube.runtime.failures import describe
from slurm_operator.kube.runtime.sources import any_of, ignore_status
from slurm_operator.slurm import web_token as jwt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Literal

    from slurm_operator.controllers.shared.wiring import Wiring
    from slurm_operator.kube.models.store import Change

NAME: Final = "token"
FIELD_MANAGER: Final = f"{wellknown.FIELD_MANAGER}-token"

# Versions start above this, so an apply that carries it meets a conflict unless it creates.
_NO_VERSION: Final = "1"
_BY_TARGET: Final = "target"
_BY_OWNER: Final = "owner"


def build(wiring: Wiring) -> Controller:
    """Wire the controller."""
    return TokenController(wiring).controller


class TokenController:
    """Keeps the Secret of every Token."""

    def __init__(self, wiring: Wiring, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._client = wiring.client
        self._applier = wiring.applier
        self._events = wiring.events
        self._references = wiring.secrets
        self._clock = clock
        self._status = StatusWriter(wiring.client, FIELD_MANAGER)
        self._written: dict[Key, Secret] = {}
        self._tokens = wiring.manager.informer(Token)
        self._tokens.add_index(_BY_TARGET, lambda token: (str(_target(token)),))
        self._secrets = wiring.manager.informer(Secret, labels={wellknown.LABEL_TOKEN_SECRET: wellknown.TRUE})
        self._secrets.add_index(_BY_OWNER, _owner_uids)
        moved = condition_changed(wellknown.CONDITION_READY)
        self.controller = (
            Controller(NAME, self.reconcile, workers=wiring.workers[NAME])
            .watch(self._tokens, self._rivals, any_of(ignore_status, moved))
            .watch(self._secrets, self._writers)
            .watch_channel(self._references.changes, enqueue_owners(NAME))
        )

    def _rivals(self, change: Change[Token]) -> Iterable[Key]:
        """Map a Token to itself and to those that want, or wanted, the same Secret."""
        keys = {change.key: None}
        for token in (change.old, change.new):
            if token is not None:
                keys |= dict.fromkeys(self._wanting(_target(token)))
        return keys

    def _writers(self, change: Change[Secret]) -> Iterable[Key]:
        """Map a Secret that we made to the Tokens that want it, and to the one that controls it."""
        keys = dict.fromkeys(self._wanting(change.key))
        for secret in (change.old, change.new):
            owner = None if secret is None else secret.controller_owner
            if owner is not None and owner.kind == Token.RESOURCE.kind:
                keys[Key(change.key.namespace, owner.name)] = None
        return keys

    def _wanting(self, secret: Key) -> list[Key]:
        return [token.key for token in self._tokens.store.by_index(_BY_TARGET, str(secret))]

    # ---------------------------------------------------------------------------------------------- reconcile
    async def reconcile(self, key: Key) -> Requeue | None:
        """Give a Token its Secret and say how it is."""
        token = self._tokens.store.get(key)
        if token is None or token.deleting:
            if key not in self._tokens.store.unreadable:
                self._forget(key)
            return None
        complaint = plan.complaint(token)
        if complaint is not None:
            self._references.want(Referrer(NAME, key), ())
            return await self._say(
                token, CannotIssue(Reason.INVALID_SPEC, complaint, self._last_known(token))
            )
        seen = await self._observe(token)
        decision = plan.decide(seen, self._clock())
        if isinstance(decision, CannotIssue) and seen.live is not None and not self._is_watched(token):
            if not await self._watch_unlabelled(token):
                return Requeue(0)
        else:
            self._want(token)
        if isinstance(decision, CannotIssue):
            return await self._say(token, decision)
        try:
            claims = decision.claims if isinstance(decision, Keep) else await self._write(seen, decision)
        except OwnerGoneError:
            return None  # its deletion comes as a change
        await self._remove_former(token)
        return await self._say(token, Keep(claims))

    def _forget(self, key: Key) -> None:
        self._references.want(Referrer(NAME, key), ())
        self._status.forget(Token, key)
        self._written.pop(key, None)

    def _want(self, token: Token, *others: Key) -> None:
        """Watch the Secret with the signing key, and others."""
        self._references.want(Referrer(NAME, token.key), (_signing_key(token), *others))

    def _is_watched(self, token: Token) -> bool:
        """Return whether the Secret of the Token's choice is among those that are watched by their label."""
        return self._secrets.store.get(_target(token)) is not None

    async def _watch_unlabelled(self, token: Token) -> bool:
        """Watch the Secret that stands where ours should be; return whether it is still there."""
        self._want(token, _target(token))
        return await self._references.get(_target(token)) is not None

    async def _observe(self, token: Token) -> TokenObservation:
        wanted = _signing_key(token)
        if wanted not in self._references.wanted(Referrer(NAME, token.key)):
            self._want(token)
        try:
            key = await self._references.get(wanted)
        except KubeError as error:
            # Unknown is not missing: what is in the Secret now stays.
            message = f"spec.jwtKeyRef: {describe(error)}"
            with contextlib.suppress(KubeError):
                await self._say(token, CannotIssue(Reason.KEY_UNREADABLE, message, self._last_known(token)))
            raise
        rivals = self._tokens.store.by_index(_BY_TARGET, str(_target(token)))
        return TokenObservation(token, key, await self._live(token), plan.older_rival(token, rivals))

    async def _live(self, token: Token) -> Secret | None:
        """Return the Secret that the Token names, regardless of its owner, in its newest known version."""
        key, store = _target(token), self._secrets.store
        cached = None if key in store.unreadable else store.get(key)
        if cached is not None:
            written = self._written.get(token.key)
            if written is not None and is_ahead(written, cached):
                return written
            self._written.pop(token.key, None)
            return cached
        if key in self._references.wanted(Referrer(NAME, token.key)):
            return await self._references.get(key)
        # Not one of ours, or not in the cache yet, or none at all: only the server knows.
        with contextlib.suppress(NotFound):
            return await self._client.get(Secret, key.name, key.namespace)
        return None

    # -------------------------------------------------------------------------------------------------- write
    async def _write(self, seen: TokenObservation, decision: Issue | Restore) -> jwt.TokenClaims:
        """Write the Secret; return what its token says."""
        token, live = seen.token, seen.live
        if isinstance(decision, Issue):
            value = jwt.mint(decision.key, token.username, token.lifetime(), self._clock())
            replace, claims = decision.replace, jwt.read(value)
        else:
            value, replace, claims = decision.value, False, decision.claims
        body = desired(token, value)
        if live is None:
            await require_owner(self._client, token)
        try:
            if live is not None and replace:
                await self._applier.delete(live)
                live = None
            if live is None:
                body["metadata"]["resourceVersion"] = _NO_VERSION
                answer = await self._client.apply(Secret, body)
            else:
                body["metadata"]["uid"] = live.metadata.uid
                answer = await self._update(body, live, former_owners(live, seen.key))
        except ApiError as error:
            await self._failed(token, error, "Create" if live is None else "Patch")
            raise
        self._written[token.key] = answer
        if live is None:
            self._event(token, "CreateSucceeded", "Create", f"Created Secret {token.secret_name!r}", answer)
        elif isinstance(decision, Issue) and decision.why is not Why.DUE:
            self._event(token, "TokenReissued", "Patch", plan.reissued(token, decision.why), answer)
        return claims

    async def _update(self, body: dict[str, Any], live: Secret, former: frozenset[str]) -> Secret:
        applied = await self._applier.apply(body, live, Secret, former_owners=former)
        if applied.outcome is ApplyOutcome.IMMUTABLE:
            # The content is as it must stay, so an apply of the same content may still change the labels.
            return await self._client.apply(Secret, body)
        return applied.object or live

    async def _failed(self, token: Token, error: ApiError, action: str) -> None:
        if isinstance(error, Conflict):
            return  # another client was faster: the retry reads what it wrote
        note = f"Cannot write Secret {token.secret_name!r}: {describe(error)}"
        self._event(token, f"{action}Failed", action, note, kind="Warning")
        with contextlib.suppress(KubeError):
            await self._say(token, CannotIssue(Reason.SECRET_WRITE_FAILED, note, self._last_known(token)))

    async def _remove_former(self, token: Token) -> None:
        """Delete what this Token controls under another name, from before its secretRef or user changed."""
        for secret in self._secrets.store.by_index(_BY_OWNER, token.metadata.uid):
            if secret.key != _target(token) and await self._applier.delete(secret):
                note = plan.moved(token, secret.metadata.name)
                self._event(token, "DeleteSucceeded", "Delete", note, secret)

    # ---------------------------------------------------------------------------------------------------- say
    async def _say(self, token: Token, outcome: Keep | CannotIssue) -> Requeue | None:
        ready = isinstance(outcome, Keep)
        if isinstance(outcome, CannotIssue):
            reason, message = outcome.reason, outcome.message
        else:
            reason, message = Reason.ISSUED, plan.available(token)
        unknown = reason is Reason.KEY_UNREADABLE
        new = condition(wellknown.CONDITION_READY, None if unknown else ready, reason, message, token)
        old = find_condition(self._status.newest(token).status.conditions, wellknown.CONDITION_READY)
        wrote = await self._status.write(
            token,
            new,
            stalled(token, new),
            now=self._clock(),
            **_times(outcome.claims),
            observedGeneration=token.metadata.generation,
        )
        if wrote and not ready and (old is None or old.reason != reason):
            self._event(token, reason, "Sync", message, kind="Warning")
        after = plan.requeue_after(token, outcome, self._clock())
        return None if after is None else Requeue(after)

    def _last_known(self, token: Token) -> jwt.TokenClaims:
        """Return what the status says of the token, for when nothing else is known of it."""
        status = self._status.newest(token).status
        return jwt.TokenClaims(token.username, status.issued_at, status.expires_at)

    def _event(
        self,
        token: Token,
        reason: str,
        action: str,
        note: str,
        secret: Secret | None = None,
        *,
        kind: Literal["Normal", "Warning"] = "Normal",
    ) -> None:
        self._events.event(token, kind, reason, action, note, secret)


def _target(token: Token) -> Key:
    return Key(token.metadata.namespace, token.secret_name)


def _signing_key(token: Token) -> Key:
    return Key(token.metadata.namespace, token.jwt_key.name if token.jwt_key else "")


def _owner_uids(secret: Secret) -> Iterable[str]:
    owner = secret.controller_owner
    return () if owner is None else (owner.uid,)


def _times(claims: jwt.TokenClaims | None) -> dict[str, Any]:
    named = {} if claims is None else {"issuedAt": claims.issued_at, "expiresAt": claims.expires_at}
    return {name: moment.isoformat().replace("+00:00", "Z") for name, moment in named.items() if moment}
