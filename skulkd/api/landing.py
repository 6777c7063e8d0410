"""`GET /`: what answers here and where to go next, as JSON or as a page for a browser."""

from __future__ import annotations

from html import escape

from aiohttp import hdrs, web

from skulkd.api.docs_page import STYLE
from skulkd.api.reference import PAGE_POLICY
from skulkd.api.routes import RouteTable
from skulkd.api.services import services
from skulkd.api.streams import send
from skulkd.wire.identity import ServiceInfo

routes = RouteTable("identity")
HTML_TYPE = "text/html"
LINKS = {
    "docs": "/api/docs",
    "openapi": "/api/openapi.json",
    "models": "/v1/models",
    "chat": "/v1/chat/completions",
    "state": "/state",
    "health": "/healthz",
    "metrics": "/metrics",
}
_ABOUT = {
    "docs": "every endpoint, with its fields",
    "openapi": "the same for programs",
    "models": "models that can be placed",
    "chat": "OpenAI chat completions, by POST",
    "state": "the state of the cluster",
    "health": "whether the daemon is alive",
    "metrics": "figures for Prometheus",
}


@routes.get(
    "/",
    scope="any",
    summary="What answers here, with links; a page for browsers",
    answer=ServiceInfo,
    files=(HTML_TYPE,),
    # Ollama's own client asks this way whether a server is there.
    head=True,
)
async def get_landing(request: web.Request) -> web.StreamResponse:
    identity = services(request).identity
    info = ServiceInfo(
        version=identity.version, node_id=identity.node_id, node_name=identity.name, links=LINKS
    )
    headers = {"Vary": "Accept"}
    if HTML_TYPE not in request.headers.get(hdrs.ACCEPT, ""):
        return await send(request, info.model_dump_json().encode(), headers=headers)
    headers["Content-Security-Policy"] = PAGE_POLICY
    return await send(request, render(info).encode(), f"{HTML_TYPE}; charset=utf-8", headers)


def render(info: ServiceInfo) -> str:
    """A whole HTML page."""
    title = escape(f"{info.name} {info.version}")
    rows = "".join(
        f"<tr><td>{_link(name, path)}</td><td>{escape(_ABOUT[name])}</td></tr>"
        for name, path in info.links.items()
    )
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width,initial-scale=1'>"
        f"<title>{escape(info.node_name)}: {title}</title><style>{STYLE}</style></head><body>"
        f"<header><h1>{title}</h1><p>{escape(info.description)} This is node "
        f"<strong>{escape(info.node_name)}</strong> (<code>{escape(info.node_id)}</code>). "
        "Operate it with <code>skulkctl status</code>, watch it with <code>skulkctl ui</code>, or "
        "in a browser with <code>skulkctl ui --serve</code>.</p></header>"
        f"<main><table><tbody>{rows}</tbody></table></main></body></html>"
    )


def _link(name: str, path: str) -> str:
    # A browser cannot follow what only takes a POST.
    return f"<code>{path}</code>" if name == "chat" else f"<a href='{path}'>{path}</a>"
