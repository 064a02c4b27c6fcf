"""Every mistake in a YAML file is a ConfigError: one line each, with file and line, and what was meant."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from pydantic import Field

from plugins.base import yaml_text, yamlfile
from plugins.base.errors import ConfigError
from plugins.base.yaml_text import require_bounded
from plugins.base.yamlfile import Strict, load, load_documents


class Leaf(Strict):
    colour: str
    length: float = Field(gt=0)


class Tree(Strict):
    name: str
    height: int
    leaves: list[Leaf] = Field(default_factory=list)
    by_name: dict[str, Leaf] = Field(default_factory=dict)
    best: Leaf | None = None


GOOD = """\
name: oak
height: 12
leaves:
  - {colour: green, length: 3}
  - colour: brown
    length: 2.5
by_name:
  top:
    colour: red
    length: 1
best: {colour: gold, length: 4}
"""


def refused(folder: Path, content: str | bytes) -> list[str]:
    """What is said about a file, line by line, without the folder's name."""
    path = folder / "tree.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError) as caught:
        load(path, Tree)
    return str(caught.value).replace(f"{folder}/", "").split("\n")


def read(folder: Path, content: str | bytes) -> Tree:
    path = folder / "tree.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return load(path, Tree)


def without_the_c_loader(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (yaml_text, yamlfile):
        monkeypatch.setattr(module, "Loader", type("Loader", (yaml_text.Bounded, yaml.SafeLoader), {}))


def test_a_good_file_is_read(tmp_path: Path) -> None:
    tree = read(tmp_path, GOOD)
    assert (tree.name, tree.height, len(tree.leaves)) == ("oak", 12, 2)
    assert tree.leaves[0] == Leaf(colour="green", length=3)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        # A key that is unknown
        ("name: oak", "nme: oak\nname: oak", "1: nme: unknown key; did you mean 'name'?"),
        ("height: 12", "height: 12\nzzz: 1", "3: zzz: unknown key; known here: name, height, leaves, by_name, best"),
        ("    length: 2.5", "    lenght: 2.5\n    length: 2.5", "6: leaves.1.lenght: unknown key; did you mean 'length'?"),
        ("    colour: red", "    color: x\n    colour: red", "9: by_name.top.color: unknown key; did you mean 'colour'?"),
        ("colour: gold", "colours: 1, colour: gold", "11: best.colours: unknown key; did you mean 'colour'?"),
        # A wrong value
        ("height: 12", "height: tall", "2: height: expected a whole number, got 'tall'"),
        ("height: 12", 'height: "12"', "2: height: expected a whole number, got '12' (write it without quotes)"),
        ("height: 12", "height: 12.0", "2: height: expected a whole number, got 12.0"),
        ("height: 12", "height: true", "2: height: expected a whole number, got True"),
        ("height: 12", "height:", "2: height: expected a whole number, got None"),
        ("length: 2.5", "length: 0", "6: leaves.1.length: must be greater than 0, got 0"),
        ("colour: brown", "colour: [brown]", "5: leaves.1.colour: expected text, got ['brown']"),
        ("    length: 1\n", "    length: -1\n", "10: by_name.top.length: must be greater than 0, got -1"),
        # A key that is missing
        ("name: oak\n", "", "1: name: missing; this key is required"),
        ("    length: 2.5\n", "", "5: leaves.1.length: missing; this key is required"),
        ("    length: 1\n", "", "8: by_name.top.length: missing; this key is required"),
        # One that is given twice
        ("height: 12", "height: 12\nheight: 13", "3: height: given twice; keep one"),
        ("    length: 2.5", "    length: 2.5\n    length: 2.5", "7: length: given twice; keep one"),
        ("colour: green,", "colour: green, colour: blue,", "4: colour: given twice; keep one"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_line(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert refused(tmp_path, GOOD.replace(old, new, 1)) == [f"tree.yaml:{said}"]


@pytest.mark.parametrize("number", ["25.04", "1", "1:30:00"])
def test_a_number_where_text_is_meant_says_to_quote_it(tmp_path: Path, number: str) -> None:
    (said,) = refused(tmp_path, GOOD.replace("name: oak", f"name: {number}"))
    assert said.startswith("tree.yaml:1: name: expected text, got ")
    assert said.endswith("(YAML reads this as a number: put it in quotes)")


def test_all_mistakes_are_told_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = GOOD.replace("name: oak", "name: 1").replace("length: 2.5", "length: 0\n    width: 1")
    text = text.replace("height: 12", "height: x\nheight: 12")
    lines = [line.partition(": ")[0] for line in refused(tmp_path, text)]
    assert lines == ["tree.yaml:1", "tree.yaml:3", "tree.yaml:7", "tree.yaml:8"]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("name: oak\n\theight: 12\n", 2),
        ("name: oak\nheight: [1, 2\nleaves: []\n", 3),
        ("name: oak\nheight: 'x\n", 3),
        ("name: *oak\n", 1),
        ("name: oak\n---\nname: elm\n", 2),
        ("name: oak\n? [a, b]\n: 1\n", 2),
        ("name: oak\nheight: !!python/object:os.system x\n", 2),
        ("name: oak: elm\n", 1),
    ],
)
def test_what_is_not_yaml_is_refused_with_its_line(tmp_path: Path, content: str, line: int) -> None:
    (said,) = refused(tmp_path, content)
    assert said.startswith(f"tree.yaml:{line}: not valid YAML: ")


@pytest.mark.parametrize(
    "content", ["", "\n\n", "# nothing yet\n", "- name: oak\n", "oak\n", "---\n", "null\n", "[]"]
)
def test_a_file_without_keys_is_refused(tmp_path: Path, content: str) -> None:
    assert refused(tmp_path, content) == ["tree.yaml: expected `key: value` lines, found none"]


@pytest.mark.parametrize("content", [b"\xef\xbb\xbf" + GOOD.encode(), GOOD.replace("\n", "\r\n").encode()])
def test_a_byte_order_mark_or_windows_line_ends_do_no_harm(tmp_path: Path, content: bytes) -> None:
    assert read(tmp_path, content) == read(tmp_path, GOOD)
    (said,) = refused(tmp_path, content.replace(b"height: 12", b"height: x"))
    assert said.startswith("tree.yaml:2: ")


@pytest.mark.parametrize(
    "content", [GOOD.replace("oak", "chêne").encode("latin-1"), GOOD.encode("utf-16"), b"\xff\xfe"]
)
def test_a_file_that_is_not_utf_8_is_refused(tmp_path: Path, content: bytes) -> None:
    (said,) = refused(tmp_path, content)
    assert said.startswith("tree.yaml:1: is no text in UTF-8: save the file as UTF-8")


def test_a_file_that_is_not_there_or_a_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: no such file$"):
        load(tmp_path / "none.yaml", Tree)
    with pytest.raises(ConfigError, match=f"^{tmp_path}: cannot be read: "):
        load(tmp_path, Tree)


def test_a_nul_byte_is_one_mistake_on_one_line(tmp_path: Path) -> None:
    said = refused(tmp_path, GOOD.replace("oak", "o\0k"))
    assert len(said) == 1
    assert said[0].startswith("tree.yaml:")


def test_an_alias_of_itself_is_a_config_error(tmp_path: Path) -> None:
    assert refused(tmp_path, GOOD.replace("height: 12", "height: &a [*a]"))[0].startswith("tree.yaml:")


def test_a_merge_key_may_be_overridden(tmp_path: Path) -> None:
    text = GOOD.replace("best: {colour: gold, length: 4}", "best: {<<: {colour: x, length: 4}, colour: gold}")
    assert read(tmp_path, text).best == Leaf(colour="gold", length=4)


# Files that would take minutes or all memory, or end the process

TOO_MUCH = ": more than 100,000 values or 100 levels, each alias (*name) counted as what it stands for"
BILLION_LAUGHS = "".join(
    f"{name}: &{name} [{', '.join([f'*{before}' if before else 'lol'] * 9)}]\n"
    for before, name in zip(["", *"abcdefgh"], "abcdefghi", strict=True)
)
MERGES = "a: &a {x: 1}\n" + "".join(
    f"{name}: &{name} {{<<: [{', '.join([f'*{before}'] * 9)}]}}\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (BILLION_LAUGHS, TOO_MUCH),
        (MERGES, TOO_MUCH),
        ("a: " + "[" * 200_000, TOO_MUCH),
        ("a: " + "{a: " * 200_000, TOO_MUCH),
        ("- " * 200_000, TOO_MUCH),
        ("".join(f"%TAG !{number}! a\n" for number in range(101)) + "---\na: 1", ":101: more than 100 directives"),
        (
            "a: &a0 [1]\n" + "".join(f"b{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 200)),
            TOO_MUCH,
        ),
        ("a: &a [1, [*a]]", TOO_MUCH),
        ("a: " + "1:" * 100_000 + "1", ":1: a number of 200,001 digits"),
        ("a: " + "1" * 100_000, ":1: a number of 100,000 digits"),
        ("a: !!int '" + "1" * 100_000 + "'", ":1: a number of 100,000 digits"),
        ("a: " + "x" * (4 << 20), ": larger than 4 MiB, which no file of this kind is"),
    ],
)  # fmt: skip
def test_a_file_that_nobody_needs_is_refused_at_once(tmp_path: Path, content: str, said: str) -> None:
    (line,) = refused(tmp_path, content)
    assert line.startswith(f"tree.yaml{said}")


def test_a_list_of_too_many_values_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_text, "_MOST_VALUES", 1000)
    (line,) = refused(tmp_path, "a: [" + "1," * 1000 + "1]")
    assert line.startswith("tree.yaml: more than 1,000 values")


@pytest.mark.parametrize("reader", [lambda path: load(path, Tree), load_documents, require_bounded])
# So many levels would be too many for the loader in Python, which looks ahead at all of them again for each.
@pytest.mark.parametrize("content", [BILLION_LAUGHS, MERGES, "a: " + "[" * 500])
def test_so_it_is_by_every_reader_and_without_the_c_loader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, reader: Callable[[Path], object]
) -> None:
    without_the_c_loader(monkeypatch)
    monkeypatch.setattr(yaml_text, "_MOST_VALUES", 1000)
    path = tmp_path / "tree.yaml"
    path.write_text(content)
    with pytest.raises(ConfigError, match=r"more than 1(,0)?00 (values|levels)"):
        reader(path)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "tree.yaml")
    with pytest.raises(ConfigError, match="cannot be read: it is no regular file"):
        load(tmp_path / "tree.yaml", Tree)


def test_aliases_that_people_use_still_work(tmp_path: Path) -> None:
    text = GOOD.replace("- {colour: green", "- &leaf {colour: green").replace(
        "top:\n", "low: *leaf\n  top:\n"
    )
    tree = read(tmp_path, text.replace("best: {", "best: {<<: *leaf, "))
    assert tree.by_name["low"] == tree.leaves[0] == Leaf(colour="green", length=3)
    assert tree.best == Leaf(colour="gold", length=4)


def test_no_file_has_more_mistakes_than_somebody_reads(tmp_path: Path) -> None:
    said = refused(tmp_path, GOOD + "".join(f"{'x' * 500}{i}: 1\n" for i in range(500)))
    assert len(said) == 21
    assert said[-1] == "tree.yaml: and more mistakes behind these"
    assert max(map(len, said)) < 1000


@pytest.mark.parametrize(
    # PyYAML's constructors raise bare ValueErrors for the first three.
    "value",
    [
        "2025-13-45",
        "!!int abc",
        "!!float abc",
        "!!int ''",
        "!!bool x",
        "!!timestamp x",
        "1:1.5",
        "1:" * 45 + "1.5",
        "!!binary é",
        "!!set [1]",
    ],
)
def test_a_value_that_is_not_what_its_tag_says_is_a_config_error(tmp_path: Path, value: str) -> None:
    assert refused(tmp_path, GOOD.replace("height: 12", f"height: {value}"))[0].startswith("tree.yaml:")


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("name: oak\nbest:\n\tcolour: red\n", 3),
        ("name: oak\n\theight: 1\n", 2),
        ("leaves:\n  - colour: red\n  \tlength: 1\n", 3),
        ("\tname: oak\n", 1),
    ],
)
def test_a_tab_is_called_a_tab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, line: int
) -> None:
    said = [f"tree.yaml:{line}: not valid YAML: a tab, where YAML allows only spaces"]
    assert refused(tmp_path, content) == said
    without_the_c_loader(monkeypatch)
    assert refused(tmp_path, content) == said
