"""TLS material for listeners and channels, read when the server or channel is made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import final

import grpc


@final
@dataclass(frozen=True, slots=True)
class ServerTls:
    """PEM files of a listener.

    Attributes:
        cert_file: certificate chain.
        key_file: private key.
        client_ca_file: when given, clients must show a certificate it signed (mutual TLS).
    """

    cert_file: Path
    key_file: Path
    client_ca_file: Path | None = None


@final
@dataclass(frozen=True, slots=True)
class ClientTls:
    """PEM files of a channel.

    Attributes:
        ca_file: who may have signed the server's certificate; the system's roots when None.
        cert_file: own certificate chain for mutual TLS.
        key_file: private key of `cert_file`.
        server_name: name expected in the server's certificate instead of the address's.
    """

    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    server_name: str | None = None


def server_credentials(tls: ServerTls) -> grpc.ServerCredentials:
    """Reads the files.

    Raises:
        OSError: a file cannot be read; its name is in the error.
    """
    pair = (tls.key_file.read_bytes(), tls.cert_file.read_bytes())
    ca = tls.client_ca_file.read_bytes() if tls.client_ca_file is not None else None
    return grpc.ssl_server_credentials([pair], root_certificates=ca, require_client_auth=ca is not None)


def channel_credentials(tls: ClientTls) -> grpc.ChannelCredentials:
    """Reads the files.

    Raises:
        OSError: a file cannot be read; its name is in the error.
    """
    return grpc.ssl_channel_credentials(
        root_certificates=_read(tls.ca_file),
        private_key=_read(tls.key_file),
        certificate_chain=_read(tls.cert_file),
    )


def _read(path: Path | None) -> bytes | None:
    return path.read_bytes() if path is not None else None
