"""Certificates as an operator would make them: one authority, one certificate for each node."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from skulkd.cluster.fabric import TlsFiles


def make_certificates(home: Path, *names: str) -> None:
    """`ca.pem`, and `NAME.pem` with `NAME.key` for each name."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=home, check=True, capture_output=True)

    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make certificates")
    home.mkdir(exist_ok=True)
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl("req", "-x509", *curve, "-keyout", "ca.key", "-out", "ca.pem",
            "-subj", "/CN=tests", "-days", "2")  # fmt: skip
    for name in names:
        # Not the address under which it is dialled: that is not checked.
        (home / "ext").write_text(f"subjectAltName=DNS:{name}\n")
        openssl("req", *curve, "-keyout", f"{name}.key", "-out", f"{name}.csr",
                "-subj", f"/CN={name}")  # fmt: skip
        signing = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2"]
        files = ["-in", f"{name}.csr", "-out", f"{name}.pem", "-extfile", "ext"]
        openssl("x509", "-req", *signing, *files)


def tls_files(home: Path, name: str) -> TlsFiles:
    return TlsFiles(home / f"{name}.pem", home / f"{name}.key", home / "ca.pem")
