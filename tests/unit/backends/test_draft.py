"""A site file in the making: what it says is valid YAML, whatever a cluster said."""

from __future__ import annotations

import pytest
import yaml
from pydantic import BaseModel

from fixtures.backends.draft import Draft, fits, names, plain
from fixtures.backends.slurm.section import Slurm

HOSTILE = (
    "a: {b: [",
    "x\n  account: root\n",
    "\x1b[2J\x07\x00\x85\u2028\ufeff\uffff",
    "\ud800",
    "# not a comment",
    "'\"&*!|>%@`",
    "-\t- ?: x",
    "größe",
    "a" * 3_000_000,
    "",
)


@pytest.mark.parametrize("said", HOSTILE, ids=range(len(HOSTILE)))
def test_whatever_a_cluster_says_stays_in_its_comment(said: str) -> None:
    draft = Draft()
    draft.set("site", "x", said, f"others: {names([said] * 50)}")
    draft.offer("qos", said[:200], said)
    draft.ask("gpu", "h100", said)
    text = draft.text(said)
    assert yaml.safe_load(text) == {"site": "x"}
    assert text.isascii()
    assert all(line.isprintable() for line in text.split("\n"))
    assert len(text) < 20_000


@pytest.mark.parametrize("said", [said for said in HOSTILE if len(said) < 1000 and "\ud800" not in said])
def test_a_value_is_what_it_was(said: str) -> None:
    draft = Draft()
    draft.set("site", said)
    draft.set("labels", {"key": [said, "1:30:00", "007", "yes"]})
    assert yaml.safe_load(draft.text()) == {"site": said, "labels": {"key": [said, "1:30:00", "007", "yes"]}}


def test_a_mapping_without_a_value_is_commented_out_as_a_whole() -> None:
    draft = Draft()
    draft.set("site", "x")
    values = draft.within("jobset").within("recipes").within("llama3_gke").within("values")
    values.ask("image", "", "the image")
    values.ask("bucket", "b", "the bucket")
    assert yaml.safe_load(draft.text()) == {"site": "x"}
    # Without the marks it says what was asked.
    block = draft.text().partition("# jobset:")
    restored = "jobset:" + "\n".join(line.removeprefix("# ") for line in block[2].splitlines())
    assert yaml.safe_load(restored) == {
        "jobset": {"recipes": {"llama3_gke": {"values": {"image": "", "bucket": "b"}}}}
    }
    assert [question.key for question in draft.questions] == [
        "jobset.recipes.llama3_gke.values.image",
        "jobset.recipes.llama3_gke.values.bucket",
    ]


class Model(BaseModel):
    site: str
    """What the model says."""

    port: int = 22


def test_a_comment_begins_with_what_the_model_says_of_the_key() -> None:
    draft = Draft("", Model)
    draft.set("site", "x", "What was found.")
    draft.offer("port", 22)
    draft.within("ssh", model=Model).set("site", "y")
    assert (
        draft.text("Head.")
        == """\
# Head.

# What the model says.
# What was found.
site: x
# port: 22

ssh:
  # What the model says.
  site: y
"""
    )


def test_names_are_counted_when_there_are_many() -> None:
    assert names([]) == "none"
    assert names(["a"]) == "a"
    assert names(["a", "b", "c"]) == "a, b and c"
    assert names(map(str, range(2000))).endswith("11 and 1988 more")


def test_a_long_text_is_cut() -> None:
    assert plain("x" * 100, 10) == "xxxxxxxxxx..."
    assert plain("a\n b", 10) == "a b"


@pytest.mark.parametrize(
    ("key", "value", "good"),
    [
        ("partition", "batch,h100", True),
        ("partition", "a b", False),
        ("partition", "x;reboot", False),
        ("partition", "batch\n", False),
        ("account", "", False),
        ("account", "x" * 300, False),
        ("stage", "/lustre/me", True),
        ("stage", "lustre", False),
        ("stage", "/lus tre", False),
    ],
)
def test_a_key_takes_only_what_its_model_takes(key: str, value: str, good: bool) -> None:
    assert fits(Slurm, key, value) is good
