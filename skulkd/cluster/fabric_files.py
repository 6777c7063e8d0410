"""Files that Zenoh is given: the password file, which is derived, and the TLS certificates."""

from __future__ import annotations

from pathlib import Path

from skulkd.settings.files import make_private_dir, write_atomic


def password_file(file: Path, user: str, password: str) -> Path:
    """Whom this node lets in: a file that only its owner can read. Raises OSError.

    It is derived from the secret, so one that is there already is not written again: a node must
    be able to start on a full disk.
    """
    text = f"{user}:{password}\n".encode()
    if not _holds(file, text):
        make_private_dir(file.parent)
        write_atomic(file, text, mode=0o600)
    return file


def tls_settings(certificate: Path, key: Path, authority: Path) -> dict[str, object]:
    """Both sides show a certificate of the same authority."""
    return {
        "root_ca_certificate": str(authority),
        "listen_certificate": str(certificate),
        "listen_private_key": str(key),
        "connect_certificate": str(certificate),
        "connect_private_key": str(key),
        "enable_mtls": True,
        "verify_name_on_connect": False,
    }


def _holds(file: Path, text: bytes) -> bool:
    """Whether the file says this and nobody but its owner can read it."""
    try:
        return file.read_bytes() == text and file.stat().st_mode & 0o077 == 0
    except OSError:
        return False
