"""Finds what looks like a secret in a file, because a bundle goes to others.

The secrets that the session knew are not in its files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from ahocorasick_rs import BytesAhoCorasick

from fixtures.backends.redaction import forms

# A line beyond this length is looked at in parts, which overlap.
_LONGEST = 1 << 16
_OVERLAP = 1 << 10

_KINDS = {
    "a private key": rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----",
    # In Base64, as in a kubeconfig: PRIVATE, RSA, EC, OPENSSH or ENCRYPTED.
    "an encoded private key": rb"LS0tLS1CRUdJTiB(QUklW|SU0Eg|FQyBQ|PUEVO|FTkNS)",
    "a token of Hugging Face": rb"\bhf_[A-Za-z0-9]{30,}\b",
    "a token of GitHub": rb"\b(gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{60,})\b",
    "a token of GitLab": rb"\bglpat-[A-Za-z0-9_-]{20,}",
    "a key of NGC": rb"\bnvapi-[A-Za-z0-9_-]{40,}",
    "a token of Slack": rb"\bxox[abprs]-[A-Za-z0-9-]{10,}",
    "a key of AWS": rb"\b(AKIA|ASIA)[A-Z0-9]{16}\b",
    "a key of Google": rb"\bAIza[A-Za-z0-9_-]{35}\b",
    "an access token of Google": rb"\bya29\.[A-Za-z0-9_-]{20,}",
    "a key of an API": rb"\bsk-[A-Za-z0-9_-]{32,}",
    "a JSON web token": rb"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
    "a password in a URL": rb"\b[a-z][a-z0-9+.-]*://[^\s/:@]*:(?!\*|<|\$)[^\s/@]{3,}@",
    "a header with credentials": rb"(?i)\bauthorization[\"']?\s*[:=]\s*[\"']?(bearer|basic|token)\s+[A-Za-z0-9._~+/=-]{12,}",
    "a registry's password": rb"\"auth\"\s*:\s*\"[A-Za-z0-9+/=]{20,}\"",
    "a password of .netrc": rb"\blogin\s+\S+\s+password\s+[^\s<$*]{4,}",
    "a signed URL": rb"(?i)[?&](sig|x-amz-signature|x-goog-signature)=[A-Za-z0-9%+/]{20,}",
    # Not `<NAME>`, `$NAME` or `***`, which stand for one.
    "a password by its name": rb"(?i)\b\w*passw(or)?d[\"']?\s*[:=]\s*[\"']?(?=[^\s\"']*\d)(?=[^\s\"']*[a-z])[^\s\"'<$*{]{6,}",
    "a secret by its option": rb"(?i)(?<!\S)--([a-z0-9]+-)*(passw(or)?d|token|secret|api-?key)[ =][\"']?(?=[^\s\"']*\d)(?=[^\s\"']*[a-z])[^\s\"'<$*{]{6,}",
    "a secret by its name": rb"(?i)\b\w*(password|passwd|secret|token|(api|access|account)[_-]?key)[\"']?\s*[:=]\s*[\"']?(?=[^\s\"']*\d)(?=[^\s\"']*[a-z])[A-Za-z0-9+/_~.-]{20,}",
}
_PATTERNS = {label: re.compile(pattern) for label, pattern in _KINDS.items()}
# Each pattern needs one of these, in small letters: most lines have none, and are looked at once.
_LIKELY = BytesAhoCorasick(
    b"key token secret passw auth :// eyj hf_ ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ glpat- nvapi- xox akia asia aiza ya29. sk- ls0tls1 sig= signature=".split()
)
_NAMED = re.compile(r"(?i)(token|secret|password|passwd|api_?key|access_?key)$")


def leaks(path: Path) -> Iterator[tuple[int, str]]:
    """The number of each line that has what looks like a secret, and what it looks like. Raises OSError."""
    secrets = {name: forms(value.strip()) for name, value in os.environ.items() if _NAMED.search(name)}
    known = [(form, f"the value of {name}") for name, spellings in secrets.items() for form in spellings]
    with path.open("rb") as file:
        number, tail = 1, b""
        while piece := file.readline(_LONGEST):
            text = tail + piece
            label = _what(text, known)
            if label:
                yield number, label
            if piece.endswith(b"\n"):
                number, tail = number + 1, b""
            else:
                tail = text[-_OVERLAP:]


def _what(text: bytes, known: list[tuple[bytes, str]]) -> str:
    for form, label in known:
        if form in text:
            return label
    small = text.lower()
    if _LIKELY.find_matches_as_indexes(small):
        for label, pattern in _PATTERNS.items():
            if pattern.search(text):
                return label
    return ""
