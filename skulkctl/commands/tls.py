"""`skulkctl tls`: the cluster's authority and its nodes' certificates."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skulkctl.command import new_app
from skulkctl.errors import NotFound, Refused, UsageMistake
from skulkctl.exits import ExitCode
from skulkctl.invocation import Invocation
from skulkctl.options import FORMAT, REACH, TABLE, verb
from skulkctl.stdout import write

if TYPE_CHECKING:
    from skulkctl.authority import Issued
    from skulkctl.pki_files import Pair

app = new_app("Make and check the certificates of a cluster.")

DAYS = 397
Directory = Annotated[
    Path | None,
    typer.Option(
        "--dir", metavar="DIR", help="Directory of the certificates; default: see config path tls."
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there already.")]


@verb(
    app,
    "init",
    FORMAT,
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
        str | None, typer.Option("--name", metavar="NAME", help="Name of the authority.")
    ] = None,
    renew: Annotated[
        bool, typer.Option("--renew", help="Extend the authority; it keeps its key and its name.")
    ] = False,
    force: Force = False,
) -> int:
    """Create the authority that signs the certificates of all nodes.

    It is valid for ten years. Its private key, ca.key, can make new members of the cluster: keep it
    on one machine only, and back it up. A renewed authority accepts all certificates that it has
    signed before; every node and client needs the new ca.pem.
    """
    from skulkctl.authority import make_authority
    from skulkctl.pki_files import authority_of, read_authority, write_pair
    from skulkd.settings.certificates import read_certificates

    where = _directory(call, directory)
    pair = authority_of(where)
    if renew:
        old = read_authority(where)
        kept = read_certificates(pair.certificate)[0].subject
        made = _sign(lambda: make_authority(kept, old.key))
    else:
        _refuse_to_replace(pair, "an authority", force)
        made = make_authority(_authority_name(name))
    write_pair(pair, made, replace=renew or force)
    _show_made(call, pair, "Authority")
    if renew:
        call.talk.hint(f"copy {pair.certificate} to every node and client; nothing else changes")
    else:
        call.talk.hint(f"for each node:  skulkctl tls issue NODE{_option(call, where)}")
    return ExitCode.DONE


@verb(
    app,
    "issue",
    FORMAT,
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
        typer.Option("--host", metavar="NAME", help="Another host name of it (repeatable)."),
    ] = None,
    ip: Annotated[
        list[str] | None,
        typer.Option("--ip", metavar="ADDRESS", help="An IP address of it (repeatable)."),
    ] = None,
    days: Annotated[
        int, typer.Option("--days", metavar="N", min=1, max=3650, help="Days it is valid.")
    ] = DAYS,
    directory: Directory = None,
    renew: Annotated[
        bool, typer.Option("--renew", help="Issue it again for the same names, with a new key.")
    ] = False,
    force: Force = False,
) -> int:
    """Issue the certificate of a node, for its API and for its links to other nodes.

    Prints the lines for the node's skulk.yaml. The certificate is for NODE, NODE.local, localhost
    and the loopback addresses; clients that use other names or addresses need --host or --ip.
    """
    from skulkctl import authority
    from skulkctl.pki_files import check_node, pair_of, read_authority, write_pair
    from skulkctl.tls_setup import copy_hint, settings_lines

    where = _directory(call, directory)
    pair = pair_of(where, check_node(node))
    more = _names(host or [], ip or [])
    names = [*(_old_names(pair, node) if renew else authority.usual_names(node)), *more]
    if not renew:
        _refuse_to_replace(pair, f"a certificate of {node}", force)
    signer = read_authority(where)
    made = _sign(lambda: authority.issue(signer, node, dict.fromkeys(names), days))
    write_pair(pair, made, replace=renew or force)
    call.talk.note(f"for {', '.join(_show_made(call, pair, 'Certificate'))}")
    if call.format in ("table", "wide"):
        write(settings_lines(call.environ, where, node))
    copying = copy_hint(call.environ, where, node)
    if copying:
        call.talk.hint(copying)
    if renew:
        call.talk.note(
            "API and store use the new files as soon as they are there; links between nodes do "
            "after a restart"
        )
        call.talk.hint(f"then, one node after the other:  skulkctl restart {node}")
    return ExitCode.DONE


@verb(
    app,
    "status",
    REACH,
    FORMAT,
    TABLE,
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
        bool, typer.Option("--check", help="Exit 7 unless every certificate is in order.")
    ] = False,
    window: Annotated[
        str, typer.Option("--within", metavar="TIME", help="Call it expiring this long before.")
    ] = "30d",
) -> int:
    """Show certificates: for whom, by whom, how long, and whether key and authority fit.

    Without TARGET those of --dir, and the one that this machine's daemon shows. With --check and
    -q only those that need attention are printed.
    """
    from skulkctl.certificate_look import look_at, within
    from skulkctl.views.certificates import CERTIFICATES, needs_attention

    within_s = within(window)
    sources = targets or _usual_sources(call, directory)
    items = [item for source in sources for item in look_at(call, source, within_s)]
    found = needs_attention(items)
    call.show_rows(CERTIFICATES, found if check and call.format == "name" else items)
    if found:
        call.talk.note(f"{len(found)} of {len(items)} need attention")
    return ExitCode.PROBLEM if check and found else ExitCode.DONE


def _directory(call: Invocation, given: Path | None) -> Path:
    return (given if given is not None else call.paths.tls).expanduser().absolute()


def _option(call: Invocation, where: Path) -> str:
    return "" if where == call.paths.tls.absolute() else f" --dir {where}"


def _usual_sources(call: Invocation, given: Path | None) -> list[str]:
    from skulkctl.certificate_look import local_endpoint

    asked = call.options.get("endpoint")
    if asked:
        return [_secure_url(asked)]
    where = _directory(call, given)
    endpoint = local_endpoint(call) if given is None else None
    found = [*([str(where)] if where.is_dir() else []), *([endpoint] if endpoint else [])]
    if not found:
        raise NotFound(f"no certificates in {where}", hints=["make some:  skulkctl tls init"])
    return found


def _secure_url(typed: str) -> str:
    from skulkctl.endpoints import parse_endpoint

    try:
        return parse_endpoint(typed, secure=True)
    except ValueError as error:
        raise UsageMistake(f"--endpoint: {error}") from None


def _authority_name(typed: str | None) -> str:
    from skulkctl.authority import LONGEST_NAME

    name = "Skulk cluster" if typed is None else typed.strip()
    if not name or not name.isprintable() or len(name) > LONGEST_NAME:
        raise UsageMistake(
            f"--name {typed!r}: must be one line of 1 to {LONGEST_NAME} visible characters"
        )
    return name


def _names(hosts: list[str], addresses: list[str]) -> list[str]:
    from skulkctl.authority import check_address, check_host

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


def _refuse_to_replace(pair: Pair, what: str, force: bool) -> None:
    found = pair.existing()
    if found is not None and not force:
        raise Refused(
            f"there is {what} already: {found}",
            hints=["extend it:  add --renew", "replace it for good:  add --force"],
        )


def _sign(work: Callable[[], Issued]) -> Issued:
    try:
        return work()
    except ValueError as error:
        raise Refused("cannot sign the certificate", str(error)) from None


def _show_made(call: Invocation, pair: Pair, kind: str) -> list[str]:
    """Tell what was written; the names in the certificate."""
    from skulkctl.output import envelope, to_json, to_yaml
    from skulkctl.units import time_text
    from skulkd.settings.certificates import day, read_certificates

    made = read_certificates(pair.certificate)[0]
    document = envelope(
        kind,
        {
            "certificate": str(pair.certificate),
            "key": str(pair.key),
            "subject": made.subject,
            "names": list(made.names),
            "expiresAt": time_text(made.not_after),
            "fingerprint": made.fingerprint,
        },
    )
    if call.format in ("json", "jsonl"):
        write(to_json(document, 2 if call.format == "json" else None))
    elif call.format == "yaml":
        write(to_yaml(document))
    elif call.format == "name":
        write(f"{pair.certificate}\n")
    call.talk.note(f"wrote {pair.certificate}, valid until {day(made.not_after)}")
    call.talk.note(f"wrote {pair.key}, readable by its owner only")
    return list(made.names)
