"""TLS for the store server, from the certificates that the cluster's links use."""

import ssl
from collections.abc import Mapping

from skulkd.settings.paths import expand_home
from skulkd.store.errors import StoreError
from skulkd.wire.config import TlsSection


class CertificateError(StoreError):
    kind = "certificate"


def tls_contexts(
    tls: TlsSection | None, environ: Mapping[str, str]
) -> tuple[ssl.SSLContext | None, ssl.SSLContext | None]:
    """For the server and for clients; both sides must be signed by the authority.

    Raises CertificateError. Names are not compared: nodes are reached by addresses that change.
    """
    if tls is None:
        return None, None
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    try:
        for context in (server, client):
            context.load_cert_chain(
                expand_home(tls.certificate, environ), expand_home(tls.key, environ)
            )
            context.load_verify_locations(expand_home(tls.authority, environ))
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError) as error:
        raise CertificateError(f"cluster.tls cannot be used: {error}") from error
    return server, client
