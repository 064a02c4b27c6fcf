"""The statement of a bundle: the digests of its members, in the in-toto format, in a DSSE envelope.

Formats: https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md and
https://github.com/secure-systems-lab/dsse/blob/master/envelope.md. Keys are Ed25519, in PEM files.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from importlib.metadata import distributions
from pathlib import Path
from platform import python_version
from typing import TYPE_CHECKING, Any

from plugins.base.errors import ConfigError
from plugins.reports.checkout import VERSION

if TYPE_CHECKING:
    from cryptography.x509 import Certificate
    from securesystemslib.dsse import Envelope

ENVELOPE = "statement.dsse.json"
"""The member of a bundle that has the envelope."""

STAMP = "statement.tsr"
"""The member that has a time stamp of the statement, if there is one."""

PAYLOAD = "application/vnd.in-toto+json"
STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "urn:pacemark:run:"
"""The type of the predicate, without the number of its format."""
FORMAT = 1
"""It changes if a verifier of the old format would be misled."""

_FORMAT = re.compile(r"[1-9][0-9]{0,8}")
# In hexadecimal digits.
_KEY_ID, _SIGNATURE = re.compile(r"[0-9a-f]{64}"), re.compile(r"[0-9a-f]{128}")
_HASHES = {
    f"2.16.840.1.101.3.4.2.{n}": name for n, name in enumerate(("sha256", "sha384", "sha512"), start=1)
}
_MAKE_KEY = (
    "openssl genpkey -algorithm ed25519 -out vendor.pem; openssl pkey -in vendor.pem -pubout -out vendor.pub"
)


class NewerFormat(ConfigError):
    """The statement is of a format that this version does not know."""


def make(digests: Mapping[str, str], predicate: Mapping[str, Any]) -> Envelope:
    """The envelope, without a signature, of a statement. `digests` has the SHA-256 of each member by its name."""
    from securesystemslib.dsse import Envelope

    statement = {
        "_type": STATEMENT,
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in sorted(digests.items())],
        "predicateType": f"{PREDICATE}{FORMAT}",
        "predicate": predicate,
    }
    return Envelope(json.dumps(statement, sort_keys=True).encode(), PAYLOAD, {})


def written(envelope: Envelope) -> bytes:
    """The envelope as JSON."""
    return json.dumps(envelope.to_dict(), indent=1).encode() + b"\n"


def read(data: bytes) -> tuple[Envelope, dict[str, str], dict[str, Any]]:
    """The envelope, the digests by member, and the predicate.

    Raises ConfigError if this is no envelope of a bundle's statement, and NewerFormat if it is of a newer one.
    """
    from securesystemslib.dsse import Envelope
    from securesystemslib.exceptions import Error

    try:
        document = json.loads(data, object_pairs_hook=once)
        # It changes what it is given.
        envelope = Envelope.from_dict(json.loads(data))
        _require_signed_whole(document, envelope)
        if envelope.payload_type != PAYLOAD:
            raise ValueError(f"its payload is of type {envelope.payload_type}")
        statement = json.loads(envelope.payload, object_pairs_hook=once)
        if statement["_type"] != STATEMENT:
            raise ValueError(f"its payload is no in-toto statement but {statement['_type']}")
        before, _, number = statement["predicateType"].partition(PREDICATE)
        if before or not _FORMAT.fullmatch(number):
            raise ValueError(f"its statement is of another type, {statement['predicateType']}")
        if int(number) > FORMAT:
            raise NewerFormat(
                f"{ENVELOPE}: is of format {number}, and this Pacemark knows {FORMAT}: use a newer one"
            )
        digests: dict[str, str] = {}
        for subject in statement["subject"]:
            if str(subject["name"]) in digests:
                raise ValueError(f"its statement names {subject['name']} twice")
            digests[str(subject["name"])] = str(subject["digest"]["sha256"])
        return envelope, digests, dict(statement["predicate"])
    except KeyError as error:
        raise ConfigError(f"{ENVELOPE}: is no statement of a bundle: it lacks {error}") from None
    except (ValueError, TypeError, AttributeError, RecursionError, Error) as error:
        raise ConfigError(f"{ENVELOPE}: is no statement of a bundle: {error}") from None


def _require_signed_whole(document: Any, envelope: Envelope) -> None:
    """Raise ValueError if an envelope has anything that no signature covers, or what is no signature by Ed25519."""
    signatures = envelope.signatures.values()
    if envelope.to_dict() != document or any(signature.unrecognized_fields for signature in signatures):
        raise ValueError("it has a field or an encoding that nobody signs")
    for signature in signatures:
        if not _KEY_ID.fullmatch(signature.keyid) or not _SIGNATURE.fullmatch(signature.signature):
            raise ValueError("a signature in it is none of Ed25519")


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """For `json.loads`: raises ValueError if an object has a key twice, because readers differ in which one they take."""
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("it has a key twice")
    return values


def sign(envelope: Envelope, key: Path) -> None:
    """Add a signature. It replaces one that only claims to be of this key.

    Raises ConfigError if the file has no private key, or its owner has signed already.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from securesystemslib.signer import CryptoSigner  # type: ignore[attr-defined]

    private = _loaded(key, lambda data: load_pem_private_key(data, None), "private key")
    if not isinstance(private, Ed25519PrivateKey):
        raise ConfigError(f"{key}: is no Ed25519 key; make one: {_MAKE_KEY}")
    signer = CryptoSigner(private)
    if _has_signed(envelope, signer.public_key):
        raise ConfigError(f"{key}: this key has signed already")
    envelope.sign(signer)


def _has_signed(envelope: Envelope, key: Any) -> bool:
    from securesystemslib.exceptions import VerificationError

    try:
        envelope.verify([key], 1)
    except VerificationError:
        return False
    return True


class PublicKey:
    """The public key of a party, from a PEM file. Raises ConfigError if it has none."""

    def __init__(self, path: Path) -> None:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
        from securesystemslib.signer import SSlibKey  # type: ignore[attr-defined]

        public = _loaded(path, load_pem_public_key, "public key")
        if not isinstance(public, Ed25519PublicKey):
            raise ConfigError(f"{path}: is no Ed25519 key; make one: {_MAKE_KEY}")
        self.path = path
        self._key = SSlibKey.from_crypto(public)

    @property
    def id(self) -> str:
        return self._key.keyid

    def why_not(self, envelope: Envelope) -> str:
        """Why the owner of this key has not signed the envelope as it is; "" if the owner has."""
        if self.id not in envelope.signatures:
            return f"{self.path}: its owner has not signed"
        if not _has_signed(envelope, self._key):
            return f"{self.path}: its owner's signature is of another statement, or is damaged"
        return ""


def load_roots(path: Path) -> list[Certificate]:
    """The certificates of a PEM file. Raises ConfigError."""
    from cryptography.x509 import load_pem_x509_certificates

    certificates: list[Certificate] = _loaded(path, load_pem_x509_certificates, "certificate")
    return certificates


def time_of(answer: bytes, payload: bytes, roots: Sequence[Certificate] = (), name: str = STAMP) -> datetime:
    """When a statement was there, by a time-stamping authority's answer. Raises ConfigError if it does not tell.

    The authority's certificate must lead to one of these `roots`; without any, nobody knows who says so. `name`
    is that of the answer's file.
    """
    from rfc3161_client import VerificationError, VerifierBuilder, decode_timestamp_response

    try:
        token = decode_timestamp_response(answer)
        when, imprint = token.tst_info.gen_time, token.tst_info.message_imprint
        algorithm = _HASHES.get(imprint.hash_algorithm.dotted_string)
    except ValueError as error:
        raise ConfigError(f"{name}: is no answer of a time-stamping authority: {error}") from None
    if algorithm is None or hashlib.new(algorithm, payload).digest() != imprint.message:
        raise ConfigError(f"{name}: is a time stamp of something else")
    if roots:
        try:
            VerifierBuilder(roots=list(roots)).build().verify_message(token, payload)
        except (VerificationError, ValueError):
            raise ConfigError(f"{name}: is by none of the authorities of --tsa") from None
    return when


def _loaded(path: Path, load: Any, kind: str) -> Any:
    from cryptography.exceptions import UnsupportedAlgorithm

    hint = f"; make one: {_MAKE_KEY}" if "key" in kind else ""
    try:
        data = path.read_bytes()
        return load(data)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        # TypeError: the key is encrypted.
        if kind == "public key" and b"PRIVATE KEY" in data:
            hint = f"; it is a private key, which nobody else may have: openssl pkey -in {path} -pubout makes the public one"
        raise ConfigError(f"{path}: is no {kind} in PEM without a password{hint}") from None


SBOM = "sbom.cdx.json"


@cache
def bill() -> bytes:
    """The bill of materials in CycloneDX: every package that is installed beside Pacemark."""
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.output.json import JsonV1Dot6
    from packageurl import PackageURL

    root = Component(name="pacemark", version=VERSION, type=ComponentType.APPLICATION, bom_ref="pacemark")
    python = Component(name="python", version=python_version(), type=ComponentType.PLATFORM, bom_ref="python")
    installed = {(package.name, package.version) for package in distributions() if package.name}
    packages = []
    for name, version in sorted(installed):
        purl = PackageURL("pypi", None, name.lower(), version)
        packages.append(Component(name=name, version=version, purl=purl, bom_ref=str(purl)))
    bom = Bom(components=[python, *packages])
    bom.metadata.component = root
    bom.register_dependency(root, [python, *packages])
    return JsonV1Dot6(bom).output_as_string(indent=1).encode() + b"\n"
