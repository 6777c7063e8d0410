"""Certificates as rows: state, names, expiry, whether the key and the authority fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from skulkctl.tables import EMPTY, Column, Resource
from skulkctl.units import time_text
from skulkctl.views.read import Document, moment, sequence, text

if TYPE_CHECKING:
    from skulkd.settings.certificates import Certificate

OK, EXPIRING, EXPIRED, INVALID = "ok", "expiring", "expired", "invalid"
SYMBOLS = {OK: "●", EXPIRING: "▲", EXPIRED: "✖", INVALID: "✖"}


def state_text(value: object) -> str:
    """`● ok`: the symbol and the word."""
    word = str(value)
    return f"{SYMBOLS[word]} {word}" if word in SYMBOLS else EMPTY


def days_text(value: object) -> str:
    """`12 days`, `1 day`, `-3 days`."""
    if not isinstance(value, int):
        return EMPTY
    return f"{value} day{'' if abs(value) == 1 else 's'}"


CERTIFICATES = Resource(
    kind="CertificateList",
    name_path="source",
    empty_hint="no certificates here:  skulkctl tls init",
    columns=(
        Column("state", "state", "ok, expiring, expired or invalid.", state_text, status=True),
        Column("source", "source", "File, or address that shows it."),
        Column("subject", "subject", "Whose it is.", spare=3),
        Column("left", "daysLeft", "Time until it expires.", days_text, right=True),
        Column("expires", "expiresAt", "When it expires.", spare=4),
        Column("issuer", "issuer", "Who signed it.", spare=5),
        Column("key", "key", "Whether the private key beside it is its own.", spare=2),
        Column("chain", "chain", "Whether the authority has signed it.", spare=1),
        Column("names", "names", "Host names and addresses it is for."),
        Column("problem", "problem", "What is wrong with it."),
        Column("fingerprint", "fingerprint", "SHA-256 of the certificate.", wide=True),
    ),
)


@dataclass(frozen=True)
class Look:
    """What was found out about one certificate besides its own facts."""

    key: str | None = None
    chain: str | None = None
    problem: str | None = None


def certificate_item(
    source: str, certificate: Certificate, look: Look, now: datetime, within_s: float
) -> dict[str, object]:
    """One row. It is `expiring` when less than `within_s` is left."""
    invalid = certificate.validity_problem(now)
    left_s = (certificate.not_after - now).total_seconds()
    state = OK
    if left_s <= 0:
        state = EXPIRED
    elif look.problem is not None or invalid is not None:
        state = INVALID
    elif left_s < within_s:
        state = EXPIRING
    return {
        "source": source,
        "state": state,
        "subject": certificate.subject,
        "names": list(certificate.names),
        "issuer": certificate.issuer,
        "isAuthority": certificate.is_authority,
        "validFrom": time_text(certificate.not_before),
        "expiresAt": time_text(certificate.not_after),
        "daysLeft": certificate.days_left(now),
        "key": look.key,
        "chain": look.chain,
        "problem": look.problem or invalid,
        "fingerprint": certificate.fingerprint,
    }


def unusable_item(source: str, problem: str) -> dict[str, object]:
    """A row for what could not be read or reached."""
    fields: dict[str, object] = {
        column.path: None for column in CERTIFICATES.columns if column.path != "names"
    }
    return {**fields, "source": source, "state": INVALID, "names": [], "problem": problem}


def expiries(nodes: Sequence[Document], now: datetime) -> list[tuple[float, str, str]]:
    """Seconds left, node and use of every certificate of the nodes, the first to expire first."""
    return sorted(
        ((ends - now).total_seconds(), str(node["name"]), text(one, "use") or "TLS")
        for node in nodes
        for one in sequence(node, "certificates")
        if (ends := moment(one, "expiresAt")) is not None
    )


def in_days(seconds: float) -> str:
    return f"in {days_text(int(seconds // 86400))}"


def needs_attention(items: Sequence[Document]) -> list[Document]:
    """Everything that is not simply in order."""
    return [item for item in items if item["state"] != OK]
