"""However a log is cut into pieces, no secret comes through."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fixtures.redaction import starred

SECRET, OTHER = b"hf_aabaab", b"hf_x"


@given(st.lists(st.sampled_from([SECRET, OTHER, b"hf_aab", b"a", b"h", b"step 1\n"])), st.data())
def test_pieces_are_starred_like_the_whole(parts: list[bytes], data: st.DataObject) -> None:
    text = b"".join(parts) + b"."
    shown, at = b"", 0
    while at < len(text):
        piece = starred(text[at : data.draw(st.integers(at + 1, len(text)))], [SECRET, OTHER])
        shown, at = shown + piece, at + len(piece)
    assert len(shown) == len(text)
    assert SECRET not in shown
    assert OTHER not in shown


def test_without_a_secret_nothing_is_held_back() -> None:
    assert starred(b"hf_", []) == b"hf_"
    assert starred(b"hf_", [b""]) == b"hf_"
