"""What was changed of a bundle after it was signed, who has signed it and when, and archives that are damaged or mean harm.

`a_statement.tsr` is an authority's answer, made with `openssl ts`, on the text `a statement`.
"""

from __future__ import annotations

import errno
import io
import json
import stat
import struct
import zipfile
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from rfc3161_client import TimestampRequestBuilder

from pacemark.__main__ import main
from plugins.base.errors import ConfigError
from plugins.bundle import archive, statement
from plugins.bundle.statement import ENVELOPE
from tests.unit.bundles import runs
from tests.unit.bundles.changes import SUMMARY, also, text, without
from tests.unit.bundles.runs import AGAIN, SLOW, Change, Members, changed, replaced

LOG = f"llama3/{SLOW}/log.txt"


def verify(path: Path, keys: Path, *names: str) -> int:
    parties = [word for name in names or ("vendor", "buyer") for word in ("--key", str(keys / f"{name}.pub"))]
    return main(["verify", str(path), *parties])


def signed(members: Members, keys: Path, *names: str) -> Members:
    return runs.signed(members, *(keys / f"{name}.pem" for name in names or ("vendor", "buyer")))


@pytest.mark.promise("no confusing failure: a bundle")
def test_a_bundle_as_it_was_made_is_verified(
    bundle: Path, keys: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(bundle, keys) == 0
    said = capsys.readouterr().out
    assert [line for line in said.splitlines() if line.startswith("note")] == [
        "note      judged as what the site file states: llama3 25.04 on h100",
        f"note      by the ledger, another job had to follow llama3/{AGAIN} try 1 (node gpu017 is down)",
    ]
    assert "verdicts  2 passed, 1 too slow, 1 infrastructure: made anew of the logs" in said
    assert said.splitlines()[-1].startswith("result    VERIFIED: signed by ")
    assert "wrong" not in said


def test_a_text_of_a_run_is_no_line_of_the_result(
    members: Members, keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forged = changed(
        members, SUMMARY, lambda s: s["cases"][0].update(remarks=["\x1b[2J\nresult    VERIFIED"])
    )
    assert verify(runs.packed(signed(forged, keys), tmp_path / "forged.zip"), keys) == 1
    out = capsys.readouterr().out
    assert r"\x1b[2J\nresult    VERIFIED" in out
    assert [line for line in out.splitlines() if line.startswith("result")] == ["result    NOT VERIFIED"]


# Not signed again: the digests and signatures tell.

Stated = Callable[[dict[str, Any], dict[str, Any]], Any]


def stated(change: Stated) -> Change:
    """Another envelope; `change` gets it and its payload."""

    def made(members: Members) -> Members:
        envelope = json.loads(members[ENVELOPE])
        payload = json.loads(b64decode(envelope["payload"]))
        change(envelope, payload)
        envelope["payload"] = b64encode(json.dumps(payload, sort_keys=True).encode()).decode()
        return {**members, ENVELOPE: json.dumps(envelope).encode()}

    return made


def typed(name: str) -> Change:
    return stated(lambda envelope, payload: payload.update(predicateType=name))


def signature(**values: str) -> Change:
    return stated(lambda envelope, payload: envelope["signatures"].append(values))


def twice(members: Members) -> Members:
    """The statement's payload has a key twice."""
    envelope = json.loads(members[ENVELOPE])
    payload = b64decode(envelope["payload"]).replace(b'"_type"', b'"_type": "x", "_type"')
    return {**members, ENVELOPE: json.dumps({**envelope, "payload": b64encode(payload).decode()}).encode()}


NOTHING = b64encode(bytes(64)).decode()
ANOTHER = "its statement is of another type, "
UNSIGNED = "it has a field or an encoding that nobody signs"
NONE = "a signature in it is none of Ed25519"
CHANGED: dict[str, tuple[Change, str]] = {
    "a byte of a log": (text(LOG, "iteration 49", "iteration 48"), f"{LOG} is not what was signed"),
    "a step time": (text(LOG, "s: 16.1", "s: 14.6", 99), f"{LOG} is not what was signed"),
    "the summary": (text(SUMMARY, "too slow", "passed"), f"{SUMMARY} is not what was signed"),
    "a member was added": (also("llama3/notes.txt"), "llama3/notes.txt is not in the statement"),
    "a member was left out": (without(LOG), f"{LOG} is missing: the statement names it"),
    "no statement": (without(ENVELOPE), f"{ENVELOPE}: it is missing"),
    "a statement that is no JSON": (also(ENVELOPE, b"{"), "is no statement of a bundle"),
    "a key twice in the statement": (twice, "is no statement of a bundle: it has a key twice"),
    "a field of the statement": (
        stated(lambda e, p: p["predicate"].update(site="other")),
        "signature is of another statement, or is damaged",
    ),
    "a signature was taken out": (stated(lambda e, p: e["signatures"].pop()), "buyer.pub: its owner has not signed"),
    "no signature": (stated(lambda e, p: e["signatures"].clear()), "vendor.pub: its owner has not signed"),
    "a signature twice": (stated(lambda e, p: e["signatures"].append(e["signatures"][0])), "Multiple signatures found"),
    "a damaged signature": (
        stated(lambda e, p: e["signatures"][0].update(sig=NOTHING)),
        "vendor.pub: its owner's signature is of another statement, or is damaged",
    ),
    "another type of payload": (stated(lambda e, p: e.update(payloadType="text/plain")), "its payload is of type text/plain"),
    "no in-toto statement": (stated(lambda e, p: p.update(_type="x")), "its payload is no in-toto statement but x"),
    "a statement of another type": (typed("https://slsa.dev/provenance/v1"), f"{ANOTHER}https://slsa.dev/provenance/v1"),
    "format 0": (typed("urn:pacemark:run:0"), f"{ANOTHER}urn:pacemark:run:0"),
    "a format in other digits": (typed("urn:pacemark:run:\u0661"), f"{ANOTHER}urn:pacemark:run:"),
    "a format with a zero before it": (typed("urn:pacemark:run:01"), f"{ANOTHER}urn:pacemark:run:01"),
    "a format of many digits": (typed("urn:pacemark:run:" + "9" * 5000), f"{ANOTHER}urn:pacemark:run:9"),
    "a newer format": (typed("urn:pacemark:run:2"), "is of format 2, and this Pacemark knows 1: use a newer one"),
    "a field of the envelope that nobody signs": (stated(lambda e, p: e.update(decision="accepted")), UNSIGNED),
    "a field of a signature that nobody signs": (stated(lambda e, p: e["signatures"][0].update(signer="the buyer")), UNSIGNED),
    "a signature that is none": (signature(keyid="f" * 64, sig=b64encode(b"signed").decode()), NONE),
    "a signature of nobody": (signature(keyid="the buyer", sig=NOTHING), NONE),
    "an empty signature": (signature(keyid="e" * 64, sig=""), NONE),
    "a subject twice": (stated(lambda e, p: p["subject"].append(p["subject"][0])), "its statement names"),
    "a subject whose name is a number": (stated(lambda e, p: p["subject"][0].update(name=7)), "7 is missing: the statement names it"),
    "no subjects": (stated(lambda e, p: p.pop("subject")), "it lacks 'subject'"),
    "no run": (stated(lambda e, p: p["predicate"].update(run="../x")), "its statement names no run"),
    "a run whose name is a number": (stated(lambda e, p: p["predicate"].update(run=7)), "its statement names no run"),
}  # fmt: skip


@pytest.mark.usefixtures("unexamined")
@pytest.mark.parametrize("name", CHANGED)
def test_what_was_changed_after_it_was_signed_is_named(
    name: str, members: Members, keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, said = CHANGED[name]
    status = verify(runs.packed(change(members), tmp_path / "changed.zip"), keys)
    out = capsys.readouterr().out
    assert said in out
    assert status == (2 if name == "a newer format" else 1)
    assert out.splitlines()[-1] == ("result    CANNOT TELL" if status == 2 else "result    NOT VERIFIED")


def test_what_only_says_that_it_is_a_signature_does_not_keep_its_owner_from_signing(
    members: Members, keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = stated(lambda envelope, _: envelope["signatures"][1].update(sig=NOTHING))(members)
    path = runs.packed(fake, tmp_path / "fake.zip")
    assert verify(path, keys) == 1
    assert main(["sign", str(path), "--key", str(keys / "buyer.pem")]) == 0
    assert verify(path, keys) == 0
    assert main(["sign", str(path), "--key", str(keys / "buyer.pem")]) == 2
    assert "this key has signed already" in capsys.readouterr().err


@pytest.mark.usefixtures("unexamined")
def test_the_signature_of_another_bundle_is_none(
    members: Members, keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = replaced(members, LOG, "s: 16.1", "s: 17.1", 99)
    other = json.loads(signed(slow, keys)[ENVELOPE])
    swapped = stated(lambda envelope, _: envelope.update(signatures=other["signatures"]))(members)
    assert verify(runs.packed(swapped, tmp_path / "swapped.zip"), keys) == 1
    assert capsys.readouterr().out.count("signature is of another statement, or is damaged") == 2
    whole = {**members, ENVELOPE: json.dumps(other).encode()}
    assert verify(runs.packed(whole, tmp_path / "whole.zip"), keys) == 1
    assert f"{LOG} is not what was signed" in capsys.readouterr().out


@pytest.mark.usefixtures("unexamined")
def test_one_party_that_signs_a_change_alone_is_not_enough(
    members: Members, keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    faster = replaced(members, LOG, "s: 16.1", "s: 14.6", 99)
    path = runs.packed(signed(faster, keys, "vendor"), tmp_path / "alone.zip")
    assert verify(path, keys) == 1
    assert "buyer.pub: its owner has not signed" in capsys.readouterr().out


@pytest.mark.usefixtures("unexamined")
def test_without_a_key_nobody_can_tell_who_made_it(
    bundle: Path, keys: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(bundle)]) == 2
    out = capsys.readouterr().out
    assert "no --key was given, and it carries 2 signature(s): who made this bundle is not known" in out
    assert verify(bundle, keys, "vendor") == 0
    assert "1 more signature(s), by keys that were not given" in capsys.readouterr().out
    assert verify(bundle, keys, "vendor", "other") == 1
    assert "other.pub: its owner has not signed" in capsys.readouterr().out


def test_a_key_that_cannot_verify_is_refused(
    bundle: Path, keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rsa = generate_private_key(public_exponent=65537, key_size=2048).public_key()
    (tmp_path / "rsa.pub").write_bytes(rsa.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    (tmp_path / "text.pub").write_text("hello")
    (tmp_path / "same.pub").write_bytes((keys / "vendor.pub").read_bytes())
    for files, said in (
        ([tmp_path / "rsa.pub"], "rsa.pub: is no Ed25519 key"),
        ([tmp_path / "text.pub"], "text.pub: is no public key in PEM"),
        ([keys / "vendor.pem"], "vendor.pem -pubout makes the public one"),
        ([tmp_path / "none.pub"], "none.pub: cannot be read"),
        ([keys / "vendor.pub", tmp_path / "same.pub"], "two of these files have the same key"),
    ):
        assert main(["verify", str(bundle), *(word for path in files for word in ("--key", str(path)))]) == 2
        assert said in capsys.readouterr().err


def test_a_bundle_that_cannot_be_read_proves_nothing(
    bundle: Path, keys: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, *arguments: Any, **more: Any) -> Any:
        if path == bundle:
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *arguments, **more)

    opened = Path.open
    monkeypatch.setattr(Path, "open", refuse)
    assert verify(bundle, keys) == 2
    assert "cannot    it cannot be read: [Errno 13] Permission denied" in capsys.readouterr().out


@pytest.mark.parametrize("failing", [(zipfile, "ZipFile"), (archive, "_inflated")])
def test_a_disk_that_fails_proves_nothing(
    failing: tuple[Any, str],
    bundle: Path,
    keys: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(*failing, fail)
    assert verify(bundle, keys) == 2
    assert "cannot    it cannot be read: [Errno 5] Input/output error" in capsys.readouterr().out


# The archive itself.


def _entry(
    name: str, *, mode: int = stat.S_IFREG | 0o644, method: int = zipfile.ZIP_DEFLATED
) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)
    entry.external_attr, entry.compress_type = mode << 16, method
    return entry


def _with(*entries: tuple[zipfile.ZipInfo | str, bytes]) -> Callable[[bytes, Members], bytes]:
    return lambda data, members: runs.raw_zip([*members.items(), *entries])


def _encrypted(data: bytes, members: Members) -> bytes:
    made = bytearray(runs.raw_zip([("a", b"x")]))
    made[made.index(b"PK\x01\x02") + 8] |= 1
    made[6] |= 1
    return bytes(made)


def _declared(size: int) -> Callable[[bytes, Members], bytes]:
    """The first member says in both of its headers that it is so large."""

    def change(data: bytes, members: Members) -> bytes:
        made = bytearray(runs.raw_zip([("a", bytes(100_000)), *members.items()]))
        at = made.index(b"PK\x01\x02")
        made[22:26] = made[at + 24 : at + 28] = struct.pack("<I", size)
        return bytes(made)

    return change


def _between(data: bytes, members: Members) -> bytes:
    """Behind the last member, there is one that the list of members does not have."""
    hidden = runs.raw_zip([("hidden", b"x")])
    end = data.rindex(b"PK\x05\x06")
    (at,) = struct.unpack("<I", data[end + 16 : end + 20])
    moved = data[at : end + 16] + struct.pack("<I", at + len(hidden)) + data[end + 20 :]
    return data[:at] + hidden + moved


def _flipped(data: bytes, members: Members) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as found:
        entry = found.getinfo(LOG)
        at = entry.header_offset + 30 + len(entry.filename) + 20 + entry.compress_size // 2
    return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]


def _commented(name: str) -> zipfile.ZipInfo:
    entry = _entry(name)
    entry.comment = b"passed"
    return entry


def _renamed(name: str) -> zipfile.ZipInfo:
    """With the field by which Info-ZIP gives a member another name."""
    entry, other = _entry(name), b"report.html"
    entry.extra = struct.pack("<HHBL", 0x7075, 5 + len(other), 1, zlib.crc32(name.encode())) + other
    return entry


def _resized(data: bytes, members: Members) -> bytes:
    made = bytearray(runs.raw_zip([("a", bytes(100_000)), *members.items()]))
    made[22:26] = struct.pack("<I", 5)
    return bytes(made)


def _padded(data: bytes, members: Members) -> bytes:
    """Behind the compressed data of the first member, its sizes count what no program decompresses."""
    made = runs.raw_zip([("a", bytes(100)), *members.items()])
    with zipfile.ZipFile(io.BytesIO(made)) as found:
        size = found.getinfo("a").compress_size
    packed = made[31 : 31 + size] + b"hidden"
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as stored:
        for member, data in (("a", packed), *members.items()):
            stored.writestr(member, data)
    whole = bytearray(file.getvalue())
    at = whole.index(b"PK\1\2")
    for head, fields in ((0, 8), (at, 10)):
        whole[head + fields : head + fields + 2] = struct.pack("<H", zipfile.ZIP_DEFLATED)
        whole[head + fields + 6 : head + fields + 10] = struct.pack("<L", zlib.crc32(bytes(100)))
        whole[head + fields + 14 : head + fields + 18] = struct.pack("<L", 100)
    return bytes(whole)


ARCHIVES: dict[str, tuple[Callable[[bytes, Members], bytes], str]] = {
    "cut off": (lambda data, _: data[: len(data) // 2], "is no whole ZIP file"),
    "empty": (lambda data, _: b"", "is no whole ZIP file"),
    "no ZIP file": (lambda data, _: b"hello" * 99, "is no whole ZIP file"),
    "a bit of the compressed data": (_flipped, f"{LOG}: it "),
    "a path to above": (_with(("../../x", b"x")), "../../x: it would be outside of the bundle's folder"),
    "a path to above in the midst": (_with(("llama3/../../x", b"x")), "it would be outside of the bundle's folder"),
    "an absolute path": (_with(("/etc/passwd", b"x")), "/etc/passwd: it would be outside of the bundle's folder"),
    "a backslash": (_with((_entry("..\\x"), b"x")), "a member cannot have this name"),
    "a drive": (_with(("C:x", b"x")), "a member cannot have this name"),
    "a name with a control character": (_with(("a\x1b[2J", b"x")), "a member cannot have this name"),
    "a name with a line feed": (_with(("a\nresult    VERIFIED", b"x")), "a member cannot have this name"),
    "a name of many bytes": (_with(("é" * 200, b"x")), "a member cannot have this name"),
    "many folders": (_with(("a/" * 100 + "a", b"x")), "it is below more than 7 folders"),
    "a long name": (_with(("a" * 300, b"x")), "a member cannot have this name"),
    "a link": (_with((_entry("link", mode=stat.S_IFLNK | 0o777), b"/etc/passwd")), "link: it is no plain file"),
    "a folder": (_with((_entry("folder/", mode=stat.S_IFDIR | 0o755), b"")), "folder/: it is no plain file"),
    "a device": (_with((_entry("device", mode=stat.S_IFBLK | 0o600), b"")), "device: it is no plain file"),
    "a name twice": (_with((SUMMARY, b"{}")), f"{SUMMARY}: two members have this name"),
    "a name in other letters": (_with(("Summary.json", b"{}")), "is the same name on some file systems"),
    "a file as a folder": (_with((f"{SUMMARY}/x", b"x")), f"{SUMMARY}: it is a file and a folder"),
    "encrypted": (_encrypted, "a: it is encrypted"),
    "another compression": (_with((_entry("a", method=zipfile.ZIP_BZIP2), b"x")), "a: it is compressed in another way than Deflate"),
    "a bomb that says so": (_with(("a", bytes(32 << 20))), "too many for "),
    "a bomb of sizes": (_declared(0xFFFFFFF0), "too many for "),
    "more bytes than it says": (_declared(10), "a: it has more bytes than the archive says"),
    "fewer bytes than it says": (_declared(200_000), "a: it is 100,000 bytes shorter than the archive says"),
    "another archive before it": (lambda data, members: runs.raw_zip([*members.items()]) + data, "it has bytes of no member"),
    "a member that is in no list": (_between, "it has bytes of no member before its list of members"),
    "bytes after its end": (lambda data, _: data + b"x", "it has bytes after its list of members"),
    "a page after its end": (lambda data, _: data + b"PK\3\4<html>" * 9, "it has bytes after its list of members"),
    "an archive comment": (
        lambda data, _: data[:-2] + struct.pack("<H", 6) + b"passed",
        "it has bytes after its list of members, or an archive comment",
    ),
    "another end after its end": (lambda data, _: data + data[-22:], "is no whole ZIP file"),
    "bytes between its list and its end": (lambda data, _: data[:-22] + b"hidden" + data[-22:], "is no whole ZIP file"),
    "a comment of a member": (_with((_commented("a"), b"x")), "a: it has a comment or an extra field, which nobody signs"),
    "another name in Unicode": (_with((_renamed("a"), b"x")), "a: it has a comment or an extra field, which nobody signs"),
    "bytes after the end of compressed data": (_padded, "a: it cannot be decompressed: it has bytes after its end"),
    "another size in a member's own header": (_resized, "a: its own header says otherwise than the list of members"),
    "fewer members than it has": (
        lambda data, _: data[:-14] + struct.pack("<HH", 3, 3) + data[-10:],
        "its end is not that of its list of members",
    ),
    "many members": (lambda _, members: runs.raw_zip([(f"a{number}", b"") for number in range(11)]), "members, more than 10"),
}  # fmt: skip


@pytest.mark.parametrize("name", ARCHIVES)
@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
def test_an_archive_that_is_damaged_or_means_harm_is_named(
    name: str,
    bundle: Path,
    members: Members,
    keys: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    change, said = ARCHIVES[name]
    if name == "many members":
        monkeypatch.setattr(archive, "MOST_MEMBERS", 10)
    elif name == "a bomb that says so":
        monkeypatch.setattr(archive, "_ANY_WAY", 1 << 20)
    path = tmp_path / "odd.zip"
    path.write_bytes(change(bundle.read_bytes(), members))
    assert verify(path, keys) == 1
    out = capsys.readouterr().out
    assert said in out
    assert "\x1b" not in out
    assert out.splitlines()[-1] == "result    NOT VERIFIED"
    assert list(tmp_path.iterdir()) == [path]


def test_a_name_that_ends_at_a_nul_is_named(
    members: Members, keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "nul.zip"
    path.write_bytes(runs.raw_zip([*members.items(), ("a_b", b"x")]).replace(b"a_b", b"a\0b"))
    assert verify(path, keys) == 1
    assert r"a\x00b: a member cannot have this name" in capsys.readouterr().out


HERE = Path(__file__).parent
ROOT = HERE / "tsa_root.pem"
ANSWER = (HERE / "a_statement.tsr").read_bytes()
OTHER = HERE.parents[2] / "README.md"


def test_the_time_of_a_statement_is_that_of_the_answer() -> None:
    when = statement.time_of(ANSWER, b"a statement", statement.load_roots(ROOT))
    assert (when.year, when.tzinfo) == (2026, UTC)
    assert statement.time_of(ANSWER, b"a statement") == when


def test_an_answer_that_tells_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a time stamp of something else"):
        statement.time_of(ANSWER, b"another statement", statement.load_roots(ROOT))
    with pytest.raises(ConfigError, match="is no answer of a time-stamping authority"):
        statement.time_of(b"hello", b"a statement")
    broken = bytearray(ANSWER)
    broken[-5] ^= 1
    with pytest.raises(ConfigError, match="is by none of the authorities of --tsa"):
        statement.time_of(bytes(broken), b"a statement", statement.load_roots(ROOT))
    with pytest.raises(ConfigError, match="is no certificate in PEM"):
        statement.load_roots(OTHER)


def test_a_request_is_of_the_statement(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request = tmp_path / "run.tsq"
    assert main(["stamp", str(bundle), "--request", str(request)]) == 0
    assert f"request   {request}: send it to an authority" in capsys.readouterr().out
    envelope, _, _ = statement.read(runs.unpacked(bundle)[statement.ENVELOPE])
    made = TimestampRequestBuilder().data(envelope.payload).build()
    assert made.message_imprint.message in request.read_bytes()


@pytest.mark.usefixtures("unexamined")
def test_the_time_stamp_of_another_bundle_is_named(
    bundle: Path, members: runs.Members, keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = bundle.read_bytes()
    assert main(["stamp", str(bundle), "--answer", str(HERE / "a_statement.tsr")]) == 2
    assert f"{HERE / 'a_statement.tsr'}: is a time stamp of something else" in capsys.readouterr().err
    assert bundle.read_bytes() == before
    key = ("--key", str(keys / "vendor.pub"))
    assert main(["verify", str(bundle), *key, "--tsa", str(ROOT)]) == 1
    assert "--tsa was given, and it carries no time stamp" in capsys.readouterr().out
    stamped = runs.packed({**members, statement.STAMP: ANSWER}, tmp_path / "stamped.zip")
    assert main(["verify", str(stamped), *key]) == 1
    assert "statement.tsr: is a time stamp of something else" in capsys.readouterr().out
