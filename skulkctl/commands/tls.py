"""`skulkctl tls`: the cluster's authority and its nodes' certificates."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skulkctl.cli import Invocation, Output, Reach, Table, duration, new_app, verb
from skulkctl.errors import NotFound, Refused, UsageMistake
from skulkctl.exits import ExitCode
from skulkctl.output.stdout import write

if TYPE_CHECKING:
    from skulkctl.certificates.authority import Issued
    from skulkctl.certificates.files import Pair

app = new_app("Issue and check the cluster's certificates.")

DAYS = 397
Directory = Annotated[
    Path | None,
    typer.Option(
        "--dir",
        metavar="DIR",
        help="Directory of the certificates (default: skulkctl config path tls).",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite existing files.")]


@verb(
    app,
    "init",
    Output,
    examples="""
  skulkctl tls init
  skulkctl tls init --name "our cluster" --dir ~/authority
  skulkctl tls init --renew
""",
)
def init(
    call: Invocation,
    directory: Directory = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Name of the CA.")
    ] = None,
    renew: Annotated[
        bool,
        typer.Option("--renew", help="Extend the CA's validity; its key and name stay the same."),
    ] = False,
    force: Force = False,
) -> int:
    """Create the certificate authority (CA) that signs the certificates of all nodes.

    The CA is valid for ten years. With its private key, ca.key, anyone can add members to the
    cluster: keep it on one machine only, and back it up. Certificates stay valid when the CA is
    renewed; copy the new ca.pem to every node and client.
    """
    from skulkctl.certificates.authority import make_authority
    from skulkctl.certificates.files import authority_of, read_authority, write_pair
    from skulkd.settings.certificates import read_certificates

    where = _directory(call, directory)
    pair = authority_of(where)
    if renew:
        old = read_authority(where)
        kept = read_certificates(pair.certificate)[0].subject
        made = _sign(lambda: make_authority(kept, old.key))
    else:
        made = make_authority(_authority_name(name))
    write_pair(pair, made, replace=renew or force)
    _show_made(call, pair, "Authority")
    if renew:
        call.messages.hint(
            f"copy {pair.certificate} to every node and client; nothing else changes"
        )
    else:
        call.messages.hint(f"for each node:  skulkctl tls issue NODE{_option(call, where)}")
    return ExitCode.DONE


@verb(
    app,
    "issue",
    Output,
    examples="""
  skulkctl tls issue kite1
  skulkctl tls issue kite1 --ip 192.168.1.5 --host kite1.example.org
  skulkctl tls issue kite1 --renew
""",
)
def issue(
    call: Invocation,
    node: Annotated[str, typer.Argument(metavar="NODE", help="Name of the node.")],
    host: Annotated[
        list[str] | None,
        typer.Option(
            "--host", metavar="NAME", help="Add this host name to the certificate (repeatable)."
        ),
    ] = None,
    ip: Annotated[
        list[str] | None,
        typer.Option(
            "--ip", metavar="ADDRESS", help="Add this IP address to the certificate (repeatable)."
        ),
    ] = None,
    days: Annotated[
        int, typer.Option("--days", metavar="N", min=1, max=3650, help="Validity in days.")
    ] = DAYS,
    directory: Directory = None,
    renew: Annotated[
        bool,
        typer.Option("--renew", help="Reissue the certificate for the same names, with a new key."),
    ] = False,
    force: Force = False,
) -> int:
    """Issue a node's certificate, for its API and its connections to other nodes.

    Prints the lines for the node's skulk.yaml. The certificate is for NODE, NODE.local, localhost
    and the loopback addresses; clients that use other names or addresses need --host or --ip.
    """
    from skulkctl.certificates import authority, files

    where = _directory(call, directory)
    pair = files.pair_of(where, files.check_node(node))
    more = _names(host or [], ip or [])
    names = [*(_old_names(pair, node) if renew else authority.usual_names(node)), *more]
    signer = files.read_authority(where)
    made = _sign(lambda: authority.issue(signer, node, dict.fromkeys(names), days))
    files.write_pair(pair, made, replace=renew or force)
    call.messages.note(f"for {', '.join(_show_made(call, pair, 'Certificate'))}")
    if call.format in ("table", "wide"):
        write(files.settings_lines(call.environ, where, node))
    copying = files.copy_hint(call.environ, where, node)
    if copying:
        call.messages.hint(copying)
    if renew:
        call.messages.note(
            "the API and the store load the new files by themselves; connections between nodes "
            "use them after a restart"
        )
        call.messages.hint(f"then, one node after the other:  skulkctl restart {node}")
    return ExitCode.DONE


@verb(
    app,
    "status",
    Reach,
    Output,
    Table,
    examples="""
  skulkctl tls status
  skulkctl tls status kite1.pem https://kite1:52415
  skulkctl tls status --check --within 14d -q || mail -s "renew certificates" ops < /dev/null
""",
)
def status(
    call: Invocation,
    targets: Annotated[
        list[str] | None,
        typer.Argument(metavar="TARGET", help="Files, directories or https addresses."),
    ] = None,
    directory: Directory = None,
    check: Annotated[
        bool, typer.Option("--check", help="Exit 7 unless every certificate is valid.")
    ] = False,
    within_s: Annotated[
        float,
        typer.Option(
            "--within",
            metavar="TIME",
            parser=duration,
            help="Report a certificate as expiring this long before it expires.",
            show_default="30d",
        ),
    ] = 30 * 86400.0,
) -> int:
    """Show certificates: subject, issuer, expiry, and whether they match their key and CA.

    Without TARGET, show those in --dir and the one that this machine's daemon presents. With
    --check and -q, print only those that need attention.
    """
    from skulkctl.certificates.status import CERTIFICATES, look_at, needs_attention

    sources = targets or _usual_sources(call, directory)
    items = [item for source in sources for item in look_at(call, source, within_s)]
    found = needs_attention(items)
    call.show_rows(CERTIFICATES, found if check and call.format == "name" else items)
    if found:
        call.messages.note(f"{len(found)} of {len(items)} need attention")
    return ExitCode.PROBLEM if check and found else ExitCode.DONE


def _directory(call: Invocation, given: Path | None) -> Path:
    return (given if given is not None else call.paths.tls).expanduser().absolute()


def _option(call: Invocation, where: Path) -> str:
    return "" if where == call.paths.tls.absolute() else f" --dir {where}"


def _usual_sources(call: Invocation, given: Path | None) -> list[str]:
    from skulkctl.certificates.status import local_endpoint

    asked = call.options(Reach).endpoint
    if asked:
        return [_secure_url(asked)]
    where = _directory(call, given)
    endpoint = local_endpoint(call) if given is None else None
    found = [*([str(where)] if where.is_dir() else []), *([endpoint] if endpoint else [])]
    if not found:
        raise NotFound(f"no certificates in {where}", hints=["create them:  skulkctl tls init"])
    return found


def _secure_url(typed: str) -> str:
    from skulkctl.endpoints import parse_endpoint

    try:
        return parse_endpoint(typed, secure=True)
    except ValueError as error:
        raise UsageMistake(f"--endpoint: {error}") from None


def _authority_name(typed: str | None) -> str:
    from skulkctl.certificates.authority import LONGEST_NAME

    name = "Skulk cluster" if typed is None else typed.strip()
    if not name or not name.isprintable() or len(name) > LONGEST_NAME:
        raise UsageMistake(
            f"--name {typed!r}: must be one line of 1 to {LONGEST_NAME} visible characters"
        )
    return name


def _names(hosts: list[str], addresses: list[str]) -> list[str]:
    from skulkctl.certificates.authority import check_address, check_host

    try:
        return [*map(check_host, hosts), *map(check_address, addresses)]
    except ValueError as error:
        raise UsageMistake(str(error)) from None


def _old_names(pair: Pair, node: str) -> list[str]:
    from skulkd.settings.certificates import CertificateError, read_certificates

    if not pair.certificate.exists():
        raise NotFound(
            f"no certificate of {node} to renew: {pair.certificate}",
            hints=[f"skulkctl tls issue {node}"],
        )
    try:
        return list(read_certificates(pair.certificate)[0].names)
    except CertificateError as error:
        raise Refused(f"cannot renew {pair.certificate}", error.why) from None


def _sign(work: Callable[[], Issued]) -> Issued:
    try:
        return work()
    except ValueError as error:
        raise Refused("cannot sign the certificate", str(error)) from None


def _show_made(call: Invocation, pair: Pair, kind: str) -> list[str]:
    """Print what was written; returns the names in the certificate."""
    from skulkctl.output.units import time_text
    from skulkd.settings.certificates import day, read_certificates

    made = read_certificates(pair.certificate)[0]
    document = {
        "certificate": str(pair.certificate),
        "key": str(pair.key),
        "subject": made.subject,
        "names": list(made.names),
        "expiresAt": time_text(made.not_after),
        "fingerprint": made.fingerprint,
    }
    write(call.style.single(kind, document, str(pair.certificate), lambda _: ""))
    call.messages.note(f"wrote {pair.certificate}, valid until {day(made.not_after)}")
    call.messages.note(f"wrote {pair.key}, readable by its owner only")
    return list(made.names)
