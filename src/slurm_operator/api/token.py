"""Token: a JSON web token for one user, kept in a Secret and renewed before it expires."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, ClassVar, Final

from slurm_operator.api import duration, wellknown
from slurm_operator.api.limits import Name, Word  # noqa: TC001 - msgspec resolves annotations at run time
from slurm_operator.api.markers import (
    AGE,
    DEFAULTED,
    IMMUTABLE_JWT_KEY,
    READY,
    REASON,
    REQUIRED,
    Column,
    Definition,
    Int64,
    KeyedList,
    Rule,
    pattern,
)
from slurm_operator.api.shared import Condition, Kind, SecretKeySelector, jwt_key
from slurm_operator.kube.models.meta import Part, Resource

DEFAULT_LIFETIME: Final = timedelta(minutes=15)
# The longest lifetime that still fits a signed 32-bit count of seconds; longer ones are cut to it.
MAX_LIFETIME: Final = timedelta(seconds=2**31 - 2)


class TokenSpec(Part, frozen=True):
    """For whom the token is, and how long it is valid."""

    MARKERS: ClassVar = (
        Rule(
            "has(self.jwtKeyRef) || has(self.jwtHs256KeyRef)",
            "jwtKeyRef is required: name the Secret and key that the Controller signs its tokens with "
            "(jwtHs256KeyRef is accepted as its older name)",
            field="jwtKeyRef",
        ),
    )

    jwt_key_ref: Annotated[SecretKeySelector | None, IMMUTABLE_JWT_KEY] = None
    """The Secret key that signs the token; the same as in the Controller that is to accept it."""

    jwt_hs256_key_ref: Annotated[SecretKeySelector | None, IMMUTABLE_JWT_KEY] = None
    """The older name of `jwtKeyRef`; used only while that one is unset."""

    username: Annotated[Name, REQUIRED] = ""
    """The Slurm user that the token authenticates. A user who may create Tokens can act as any user of
    the Slurm cluster: grant that permission as carefully as root."""

    lifetime: Annotated[Word, pattern(duration.PATTERN)] = ""
    """How long a token is valid: `15m`, `12h`; 15 minutes when unset. With `refresh`, the Secret gets a
    new one when a fifth of the time is left."""

    refresh: Annotated[bool, DEFAULTED] = True
    """Whether the token is renewed before it expires. When false, the Secret is immutable and its token
    expires without renewal."""

    secret_ref: SecretKeySelector | None = None
    """The Secret and key to write the token to. `<name of this object>-jwt-<username>` and `SLURM_JWT`
    when unset, ready for `envFrom` in a pod."""


class TokenStatus(Part, frozen=True):
    """What the operator last saw of the token."""

    issued_at: datetime | None = None
    """When the token that is now in the Secret was issued."""

    expires_at: datetime | None = None
    """When the token that is now in the Secret expires. With `refresh`, a new one is there before."""

    observed_generation: Int64 = 0
    """The `metadata.generation` that this status describes."""

    conditions: Annotated[tuple[Condition, ...], KeyedList("type")] = ()
    """Observations, one of each type. `Ready` says whether the Secret holds a valid token: `Issued`, or
    what is in the way, such as `KeyMissing`, `SecretConflict` or `Expired`."""


class Token(Kind, frozen=True):
    """A JSON web token for one Slurm user, in a Secret, renewed before it expires."""

    RESOURCE: ClassVar[Resource] = Resource(wellknown.GROUP, wellknown.VERSION, "tokens", "Token")
    CRD: ClassVar[Definition] = Definition(
        columns=(
            Column("USER", ".spec.username", description="The user the token is for."),
            Column("IAT", ".status.issuedAt", "date", "Time since the token was issued."),
            READY,
            REASON,
            AGE,
        ),
        short_names=("tokens", "jwt"),
    )

    spec: TokenSpec = TokenSpec()
    status: TokenStatus = TokenStatus()

    @property
    def jwt_key(self) -> SecretKeySelector | None:
        """Return the key that signs the token, under either of its two spellings."""
        return jwt_key(self.spec.jwt_key_ref, self.spec.jwt_hs256_key_ref)

    @property
    def username(self) -> str:
        """Return the user in the token; an unset name means the user `nobody`, never root."""
        return self.spec.username or "nobody"

    @property
    def secret_name(self) -> str:
        """Return the name of the Secret that holds the token."""
        named = self.spec.secret_ref.name if self.spec.secret_ref else ""
        return named or f"{self.metadata.name}-jwt-{self.spec.username}"

    @property
    def secret_key(self) -> str:
        """Return the key of the Secret under which the token is."""
        named = self.spec.secret_ref.key if self.spec.secret_ref else ""
        return named or wellknown.JWT_DATA_KEY

    def lifetime(self) -> timedelta:
        """Return how long a token is valid; raise ValueError that names the field if it is no duration."""
        if not self.spec.lifetime:
            return DEFAULT_LIFETIME
        try:
            wanted = duration.parse_duration(self.spec.lifetime)
        except ValueError as error:
            raise ValueError(f"spec.lifetime: {error}") from None
        return max(timedelta(0), min(wanted, MAX_LIFETIME))
