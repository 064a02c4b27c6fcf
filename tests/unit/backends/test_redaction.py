"""However a log is cut into pieces, and in whatever form a secret stands there, it does not come through."""

from __future__ import annotations

import base64
import html
import json
import os
import shlex
import subprocess
import urllib.parse
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fixtures.backends.redaction import SHORTEST, forms, named, starred

LETTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\x00*")
SECRETS = st.text(LETTERS, min_size=SHORTEST, max_size=40).filter(
    lambda text: text == text.strip() and len(text) >= SHORTEST
)
TOKENS = st.from_regex(r"\A[A-Za-z0-9_./+~#'\"$ -]{8,40}\Z").filter(lambda text: text == text.strip())

# Which rare letters bash takes for printable, the machine's C library knows; those of tokens all do.
PRINTED = st.text(
    st.characters(max_codepoint=127, exclude_characters="\x00*") | st.sampled_from("äß€漢"), min_size=8
).filter(lambda text: text == text.strip() and len(text) >= SHORTEST)


def b64(before: int, *, url: bool) -> Callable[[str], bytes]:
    def encode(secret: str) -> bytes:
        text = b"x" * before + secret.encode()
        code = (base64.urlsafe_b64encode if url else base64.b64encode)(text)
        # The digits at both ends belong in part to what stands around the secret.
        return code[-(-before * 8 // 6) : len(text) * 8 // 6]

    return encode


ENCODINGS: dict[str, Callable[[str], bytes]] = {
    "raw": lambda secret: secret.encode(),
    "repr": lambda secret: repr(secret)[1:-1].encode(),
    "repr with a line end": lambda secret: repr(f"{secret}\r\n")[1:-5].encode(),
    "repr of bytes": lambda secret: repr(secret.encode())[2:-1].encode(),
    "shlex": lambda secret: shlex.quote(secret).strip("'").encode() if "'" not in secret else secret.encode(),
    "url": lambda secret: urllib.parse.quote(secret, safe="").encode(),
    "path of a url": lambda secret: urllib.parse.quote(secret).encode(),
    "form of a url": lambda secret: urllib.parse.quote_plus(secret).encode(),
    "json": lambda secret: json.dumps(secret)[1:-1].encode(),
    "json in UTF-8": lambda secret: json.dumps(secret, ensure_ascii=False)[1:-1].encode(),
    "html": lambda secret: html.escape(secret).encode(),
    **{
        f"base64 after {n} bytes{', for URLs' if url else ''}": b64(n, url=url)
        for n in range(3)
        for url in (False, True)
    },
}


def piecewise(text: bytes, cuts: list[int], secrets: list[str]) -> bytes:
    """What is shown of a stream that is read up to each cut, and then to its end."""
    shown = b""
    for stop in [*sorted(cuts), len(text)]:
        shown += starred(text[len(shown) : max(stop, len(shown))], secrets)
    return shown


@example(secret="000000\U00010000\u00a1000000\U00010000", cuts=[])
@given(secret=SECRETS | TOKENS, cuts=st.lists(st.integers(0, 400)))
@settings(max_examples=75)
def test_no_form_comes_through_and_nothing_else_is_altered(secret: str, cuts: list[int]) -> None:
    before, after = "\u2421 step 1\n\u2421".encode(), "\u2421 step 2 |\n\u2421".encode()
    # The second half of a secret is cut by bytes, and may begin with the last byte of a mark.
    if secret.encode(errors="surrogateescape").find(after[-1]) > 0:
        return
    for name, encode in ENCODINGS.items():
        form = encode(secret)
        text = before + form + after
        # The marks around it begin no form, unless they are themselves a part of the secret.
        if any(mark in form.decode(errors="replace") for mark in "\u2421\n|") or text.count(form) != 1:
            continue
        shown = piecewise(text, [cut for cut in cuts if cut < len(text)], [secret])
        assert form not in shown, name
        assert (shown[: len(before)], shown[-len(after) :]) == (before, after), name
        assert set(shown[len(before) : -len(after)]) == {ord("*")}, name
        told = named(text.decode(), {"HF_TOKEN": secret})
        assert told == f"{before.decode()}<HF_TOKEN>{after.decode()}", name


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
@given(secret=TOKENS | PRINTED)
@settings(max_examples=25, deadline=None)
def test_nothing_that_bash_writes_of_a_secret_has_it(locale: str, secret: str) -> None:
    """Bash's trace, `printf %q`, `${x@Q}` and `declare -p`, of the secret alone and with a carriage return behind it."""
    script = 'set -x; : "$s"; : "$s"$\'\\r\'; : --token="$s"; set +x; printf "%q %q\\n" "$s" "$s"$\'\\r\'; echo "${s@Q}"; declare -p s'
    found = subprocess.run(
        ["bash", "-c", script],
        env={**os.environ, "s": secret, "LC_ALL": locale},
        capture_output=True,
        check=True,
    )
    said = found.stdout + found.stderr
    # Each of the seven is recognised: the trace of three, two by %q, @Q and declare.
    shown = starred(said + b"\n", [secret])
    runs = [one for one, two in pairwise(shown + b" ") if one == ord("*") != two]
    assert len(runs) == 7, (secret, said, shown)


def test_a_form_is_starred_also_where_two_overlap() -> None:
    assert starred(b"abcdabcdabcdabcd.", ["abcdabcdabcd"]) == b"*" * 16 + b"."


def test_without_a_secret_nothing_is_held_back() -> None:
    assert starred(b"hf_", []) == b"hf_"
    assert starred(b"hf_", [""]) == b"hf_"


def test_a_short_secret_has_no_forms() -> None:
    assert forms("1234567") == ()
    assert starred(b"step 1234567", ["1234567"]) == b"step 1234567"


@given(TOKENS.filter(lambda text: len(text) >= 16), st.data(), st.lists(st.integers(0, 99)))
def test_no_half_of_a_secret_is_left_where_another_process_wrote_into_its_midst(
    secret: str, data: st.DataObject, cuts: list[int]
) -> None:
    at = data.draw(st.integers(0, len(secret)))
    text = f"HF_TOKEN={secret[:at]}\n[rank1] step 1\n{secret[at:]}\n".encode()
    shown = piecewise(text, cuts, [secret])
    half = (len(secret) + 1) // 2
    left = [secret[begin : begin + half].encode() for begin in (0, len(secret) - half)]
    assert not any(part in shown for part in left)
