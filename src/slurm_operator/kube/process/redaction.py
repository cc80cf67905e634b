"""Knows a secret by the name of its key, and by its look inside a text.

A key is classified by its last word, whatever the spelling: `client-key-data`, `clientKeyData` and
`CLIENT_KEY_DATA` are one. What names an object is no secret: `secretName` and `jwtKeyRef` lead to a Secret
without showing it, and `key` alone is where an object is logged. A word that can also be harmless (`…_key`)
counts only for text, since a secret is text and a reference to one is not.

Inside a text there is only the look: tokens and private keys by their own shape, everything else by what
stands before it (`Authorization: `, `StoragePass=`, `"password": `, `https://user:`). A bare `password: …`
stays: that is how a validation error begins. Each rule names words without which it cannot match, because
most texts hold no secret and should cost next to nothing; and no rule can take more than linear time.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

REDACTED = "[redacted]"

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SECRET_KEY = re.compile(
    r"(?:^|_)(?:tokens?|authorization|(?:set_)?cookies?|jwts?|bearer|apikeys?|string_data|key_data"
    r"|(?:private|signing|auth|api)_keys?|(?:client|shared|app)_secrets?)$"
    r"|credential(?!\w*_(?:refs?|names?|namespaces?)$)"
    r"|(?<!by)(?<!com)pass(?:words?|wd|phrases?)?$"
)
_TEXT_KEY = re.compile(
    r"(?<!public)(?<!topology)(?<!object)(?<!label)(?<!annotation)(?<!taint)(?<!cache)(?<!sort)(?<!index)_key$"
)


class _Rule(NamedTuple):
    hints: tuple[str, ...]
    """Lower-case words of which one must occur."""
    pattern: re.Pattern[str]
    keep: str = ""
    """What of the match stays in front of the mark."""


# A quoted value, as Python or JSON quote it, or as JSON looks inside a text that is quoted itself. Where it
# does not end, it was cut off.
_QUOTED = r"""(?:b?"(?:[^"\\]|\\.)*|b?'(?:[^'\\]|\\.)*|(?P<quote>\\+["'])(?:(?!(?P=quote)).)*)"""
_HEADER = r"(?:authorization|\bx-[a-z-]{0,64}token|cookie)"
_WORD = (
    r"(?:(?<!by)(?<!com)pass(?:word|wd|phrase)?|token|jwt|credential|api_?key"
    r"|(?:private|signing|auth)_?key|key-data|client_?secret)s?"
)

_RULES = (
    _Rule(
        ("private key",),
        re.compile(
            r"-----BEGIN [A-Z0-9 ]{0,32}PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]{0,32}PRIVATE KEY-----|\Z)",
            re.DOTALL,
        ),
    ),
    # JSON web tokens; the same once more in base64, as Secrets carry them; PEM in base64.
    _Rule(
        ("eyj", "zxlk", "ls0tls1c"),
        re.compile(r"eyJ[\w-]{6,}(?:\.[\w-]*){1,4}|(?:ZXlK|LS0tLS1C)[A-Za-z0-9+/=_-]{16,}"),
    ),
    # A header ends with its line: its value may have spaces and commas.
    _Rule(
        ("authorization", "x-", "cookie"),
        re.compile(
            rf"""(?is)(?P<keep>{_HEADER}(?:\\*["']\s*[:=,]|[ \t]*[:=])[ \t]*)(?:{_QUOTED}|[^\r\n]+)"""
        ),
        r"\g<keep>",
    ),
    _Rule(
        ("bearer",),
        re.compile(r"(?i)(?P<keep>\bbearer\s+)[\w.~+/=-]{8,}"),
        r"\g<keep>",
    ),
    _Rule(
        ("basic",),
        re.compile(
            r"(?i)(?P<keep>\bbasic\s+)(?-i:(?=[a-z+/]*[A-Z0-9=]))"
            r"(?:[a-z0-9+/]{4}){2,}(?:[a-z0-9+/]{2,3}={1,2})?(?![\w+/=-])"
        ),
        r"\g<keep>",
    ),
    _Rule(("://",), re.compile(r"""(?<=://)[^\s/?#:@"']{0,256}:[^\s/?#"']{1,1024}(?=@)""")),
    # Without quotes a value ends with the next space: better to lose a word than to show half a password.
    _Rule(
        ("pass", "token", "jwt", "credential", "key", "secret"),
        re.compile(rf"""(?is)(?P<keep>{_WORD}(?:[ \t]*=|\\*["']\s*[:=,])[ \t]*)(?:{_QUOTED}|\S+)"""),
        r"\g<keep>",
    ),
)


def scrub(text: str) -> str:
    """Hide what looks like a secret, wherever it stands in a text."""
    lower = text.lower()
    for rule in _RULES:
        if any(hint in lower for hint in rule.hints):
            text = rule.pattern.sub(rule.keep + REDACTED, text)
    return text


def is_secret(key: str | bytes, value: Any) -> bool:
    """Return whether the key, in snake_case, kebab-case or camelCase, announces that the value is secret."""
    if not value or isinstance(value, bool):
        return False
    name = key if isinstance(key, str) else key.decode("utf-8", "replace")
    name = _CAMEL.sub("_", name).lower().replace("-", "_").replace(".", "_")
    if _SECRET_KEY.search(name):
        return True
    return isinstance(value, str | bytes | bytearray | memoryview) and _TEXT_KEY.search(name) is not None
