"""The certificates and keys of a control plane that lives for one test run."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

VALID_FOR = dt.timedelta(days=2)


@dataclass(frozen=True, kw_only=True)
class Certificates:
    """Files of one control plane; `service_account_*` sign and check the tokens of service accounts."""

    authority: Path
    authority_key: Path
    server: Path
    server_key: Path
    service_account_key: Path
    service_account_public: Path


def write_certificates(folder: Path, service_address: str) -> Certificates:
    """A certificate authority, a server certificate for loopback, and a key pair for service accounts.

    Args:
        folder: where they are written.
        service_address: the API server's address inside the cluster, the first of the service range.
    """
    folder.mkdir(parents=True)
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])
    authority = (
        _certificate(authority_name, authority_name, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    server_key = ec.generate_private_key(ec.SECP256R1())
    addresses = [ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address(service_address)]
    names = x509.SubjectAlternativeName(
        [x509.DNSName("localhost"), x509.DNSName("kubernetes.default.svc"), *(x509.IPAddress(ip) for ip in addresses)]
    )
    server = (
        _certificate(
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-apiserver")]),
            authority_name,
            server_key.public_key(),
        )
        .add_extension(names, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    # Service account tokens are RS256: the controller manager accepts no other key without saying so.
    service_account_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return Certificates(
        authority=_write(folder / "ca.crt", authority.public_bytes(serialization.Encoding.PEM)),
        authority_key=_write(folder / "ca.key", _private(authority_key)),
        server=_write(folder / "server.crt", server.public_bytes(serialization.Encoding.PEM)),
        server_key=_write(folder / "server.key", _private(server_key)),
        service_account_key=_write(folder / "service-account.key", _private(service_account_key)),
        service_account_public=_write(
            folder / "service-account.pub",
            service_account_key.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            ),
        ),
    )


def _certificate(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + VALID_FOR)
    )


def _private(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def _write(file: Path, content: bytes) -> Path:
    file.write_bytes(content)
    file.chmod(0o600)
    return file
