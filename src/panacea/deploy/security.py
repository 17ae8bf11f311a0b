"""Who is who: a certificate authority of the deployment's own, the server's certificate, and a key for every client.

Clients trust the authority's certificate and nothing else, and prove who they are with an EC P-384 key in OpenSSH's
format, which is what Flower's SuperNodes want. `cryptography` comes with the extra `federation`.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from panacea.core.files import write_atomically
from panacea.errors import RequestError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import CertificateBuilder, GeneralName

__all__ = [
    "check_credentials",
    "fingerprint",
    "make_authority",
    "make_certificate",
    "make_key",
    "pem_fingerprint",
    "read_public_key",
    "write_secret",
]

CERTIFICATE_DAYS = 397  # the most that current TLS clients accept of a server's certificate
AUTHORITY_DAYS = 3650


def write_secret(path: Path, content: bytes) -> None:
    """Write a private key: nobody but its owner may read it, from the first byte on."""
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_bytes(content)


def _new_key() -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    return ec.generate_private_key(ec.SECP384R1())


def _pem(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives import serialization as s  # noqa: PLC0415

    return key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption())


def _certificate(subject: str, days: int) -> CertificateBuilder:
    from cryptography import x509  # noqa: PLC0415
    from cryptography.x509.oid import NameOID  # noqa: PLC0415

    today = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .serial_number(x509.random_serial_number())
        .not_valid_before(today - timedelta(hours=1))  # clocks differ
        .not_valid_after(today + timedelta(days=days))
    )


def _usage(*, signs_certificates: bool) -> Any:
    from cryptography import x509  # noqa: PLC0415

    return x509.KeyUsage(
        digital_signature=True, key_cert_sign=signs_certificates, crl_sign=signs_certificates,
        content_commitment=False, key_encipherment=False, data_encipherment=False, key_agreement=False,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip


def make_authority(certificate: Path, key: Path) -> None:
    """Write the certificate and the key of a new authority."""
    from cryptography import x509  # noqa: PLC0415
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415

    secret = _new_key()
    builder = _certificate("Panacea federation", AUTHORITY_DAYS)
    signed = (
        builder.issuer_name(builder._subject_name)  # type: ignore[arg-type]
        .public_key(secret.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(secret.public_key()), critical=False)
        .sign(secret, hashes.SHA384())
    )
    write_secret(key, _pem(secret))
    write_atomically(certificate, signed.public_bytes(serialization.Encoding.PEM))


def make_certificate(authority: Path, authority_key: Path, certificate: Path, key: Path, hosts: Sequence[str]) -> None:
    """Write a server's certificate and key, signed by the authority, for some host names and addresses."""
    from cryptography import x509  # noqa: PLC0415
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey  # noqa: PLC0415
    from cryptography.x509.oid import ExtendedKeyUsageOID  # noqa: PLC0415

    issuer = x509.load_pem_x509_certificate(authority.read_bytes())
    signer = serialization.load_pem_private_key(authority_key.read_bytes(), None)
    if not isinstance(signer, EllipticCurvePrivateKey):
        raise RequestError(f"{authority_key}: not the key of this deployment's authority")
    secret = _new_key()
    signed = (
        _certificate(hosts[0], CERTIFICATE_DAYS)
        .issuer_name(issuer.subject)
        .public_key(secret.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_host(name) for name in hosts]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .sign(signer, hashes.SHA384())
    )
    write_secret(key, _pem(secret))
    write_atomically(certificate, signed.public_bytes(serialization.Encoding.PEM))


def _host(name: str) -> GeneralName:
    from cryptography import x509  # noqa: PLC0415

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def make_key(private: Path, public: Path) -> None:
    """Write a client's key pair: EC P-384, OpenSSH's format, no passphrase."""
    from cryptography.hazmat.primitives import serialization as s  # noqa: PLC0415

    key = _new_key()
    write_secret(private, key.private_bytes(s.Encoding.PEM, s.PrivateFormat.OpenSSH, s.NoEncryption()))
    write_atomically(public, key.public_key().public_bytes(s.Encoding.OpenSSH, s.PublicFormat.OpenSSH) + b"\n")


def read_public_key(path: Path) -> bytes:
    """A public key as Flower registers it: PEM bytes.

    Raises:
        RequestError: there is no such file, or it holds no EC key.
    """
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415
    from cryptography.hazmat.primitives import serialization as s  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey  # noqa: PLC0415

    try:
        key = s.load_ssh_public_key(path.read_bytes())
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise RequestError(f"{path} is not a public key in OpenSSH's format") from error
    if not isinstance(key, EllipticCurvePublicKey):
        raise RequestError(f"{path}: an EC key (ecdsa, 384 bits) is needed")
    return key.public_bytes(s.Encoding.PEM, s.PublicFormat.SubjectPublicKeyInfo)


def check_credentials(key: Path, root: Path) -> None:
    """A client's private key and the authority's certificate can be used.

    Raises:
        RequestError: one is missing, or is something else.
    """
    from cryptography import x509  # noqa: PLC0415
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415
    from cryptography.hazmat.primitives import serialization as s  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey  # noqa: PLC0415

    wrong = (ValueError, TypeError, UnsupportedAlgorithm)
    for path, read, what in (
        (key, lambda data: s.load_ssh_private_key(data, None), "a private key in OpenSSH's format, without passphrase"),
        (root, x509.load_pem_x509_certificate, "a certificate in PEM format"),
    ):
        try:
            found = read(path.read_bytes())
        except OSError as error:
            raise RequestError(f"{path}: cannot be read ({error.strerror}); `panacea federate init` wrote it") from None
        except wrong:
            raise RequestError(f"{path} is not {what}") from None
        if path == key and not isinstance(found, EllipticCurvePrivateKey):
            raise RequestError(f"{path}: an EC key (ecdsa, 384 bits) is needed")


def fingerprint(public: Path) -> str:
    """The key's fingerprint as `ssh-keygen -l` prints it."""
    return _fingerprint(public.read_text(encoding="ascii"))


def _fingerprint(line: str) -> str:
    """Of a public key in OpenSSH's format."""
    blob = base64.b64decode(line.split()[1])
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def pem_fingerprint(text: str) -> str:
    """The same, of a public key in PEM format somewhere in a text; nothing if there is none."""
    from cryptography.hazmat.primitives import serialization as s  # noqa: PLC0415

    found = re.search("-----BEGIN PUBLIC KEY-----.*?-----END PUBLIC KEY-----", text, re.DOTALL)
    try:
        key = s.load_pem_public_key(found[0].encode()) if found else None
        return (
            "" if key is None else _fingerprint(key.public_bytes(s.Encoding.OpenSSH, s.PublicFormat.OpenSSH).decode())
        )
    except (ValueError, TypeError):
        return ""
