"""The lab's own authority: keys and certificates of servers, clients and webhooks, all for 127.0.0.1."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# Controllers renew a certificate, and with it the authority, that ends within 90 days.
_DAYS = 365


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, in files."""

    certificate: Path
    key: Path


class Authority:
    """Makes `<folder>/ca.crt` at once, and signs what it is asked for.

    `names` stand in its own certificate: a controller takes an authority for its own only by its name.
    """

    def __init__(self, folder: Path, names: tuple[str, ...]) -> None:
        self._folder = folder
        self._private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "pacemark-lab")])
        alternative = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
        self._signed = (
            self._builder(self._name, self._private.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(alternative, critical=False)
            .sign(self._private, hashes.SHA256())
        )
        self.pair = self._write("ca", self._signed, self._private)

    def issue(self, name: str, *, group: str = "", hosts: tuple[str, ...] = ()) -> Pair:
        """`<name>.crt` and `.key`, good for a server at 127.0.0.1 and `hosts`, and for the client `name` of `group`."""
        private = ec.generate_private_key(ec.SECP256R1())
        subject = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
        if group:
            subject.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
        alternative: list[x509.GeneralName] = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        alternative += [x509.DNSName(host) for host in ("localhost", *hosts)]
        usage = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        signed = (
            self._builder(x509.Name(subject), private.public_key())
            .add_extension(x509.SubjectAlternativeName(alternative), critical=False)
            .add_extension(x509.ExtendedKeyUsage(usage), critical=False)
            .sign(self._private, hashes.SHA256())
        )
        return self._write(name, signed, private)

    def token_key(self) -> Path:
        """The key that signs the tokens of service accounts."""
        path = self._folder / "service-accounts.key"
        _write_key(path, rsa.generate_private_key(public_exponent=65537, key_size=2048))
        return path

    def _builder(
        self, subject: x509.Name, key: rsa.RSAPublicKey | ec.EllipticCurvePublicKey
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + datetime.timedelta(days=_DAYS))
        )

    def _write(
        self, name: str, signed: x509.Certificate, private: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
    ) -> Pair:
        pair = Pair(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        pair.certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        _write_key(pair.key, private)
        return pair


def _write_key(path: Path, private: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM,
            # Not PKCS #8: the controllers' rotator of certificates reads this form alone.
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
