"""The HTML that the server sends: the terminal, and the form that asks for the token."""

from __future__ import annotations

from html import escape

FONT_SIZES = range(8, 41)
FONT_SIZE = 15

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:;"
    " font-src 'self' data:; connect-src 'self' ws://{host}; form-action 'self';"
    " base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

_STYLE = """
@font-face{font-family:"Roboto Mono";src:url(/static/fonts/RobotoMono-VariableFont_wght.ttf)}
html,body{margin:0;height:100%;background:#0f1318;color:#d9dfe7;
font:16px/1.5 "Roboto Mono",ui-monospace,Menlo,monospace}
.textual-terminal{height:100vh;width:100vw}
.box{position:fixed;inset:0;display:flex;align-items:center;justify-content:center;
background:#0f1318;z-index:10}
.box>*{max-width:36rem;padding:2rem;text-align:center}
.closed{display:none}body.-first-byte .opening{display:none}body.-closed .closed{display:flex}
a,button{color:#0f1318;background:#56b4e9;border:0;padding:.5rem 1.25rem;font:inherit;
border-radius:4px;text-decoration:none;cursor:pointer}
input{font:inherit;padding:.45rem;margin:.5rem;width:20rem;max-width:90%;color:inherit;
background:#1d252e;border:1px solid #44617b;border-radius:4px}
.wrong{color:#f4633a}
"""


def terminal_page(title: str, host: str, typed_size: str | None = None) -> str:
    """The application; `host` is where the browser has it from."""
    wanted = int(typed_size) if typed_size and typed_size.isdecimal() else FONT_SIZE
    size = wanted if wanted in FONT_SIZES else FONT_SIZE
    return _page(
        title,
        f'<div class="box opening"><p>Opening {escape(title)} …</p></div>'
        '<div class="box closed"><div><p>The session has ended.</p><p><a href="/">Open it again'
        "</a></p></div></div>"
        f'<div id="terminal" class="textual-terminal" data-font-size="{size}"'
        f' data-session-websocket-url="ws://{escape(host)}/ws"></div>',
        '<link rel="stylesheet" href="/static/css/xterm.css">'
        '<script src="/static/js/textual.js"></script>',
    )


def login_page(title: str, *, wrong: bool = False) -> str:
    """Asks for the token."""
    complaint = '<p class="wrong">That is not the token of this cluster.</p>' if wrong else ""
    return _page(
        title,
        f'<form class="box" method="post" action="/login"><div><h1>{escape(title)}</h1>{complaint}'
        "<p>Enter the cluster's token to open the application.</p>"
        '<input name="token" type="password" autocomplete="current-password" autofocus required>'
        "<p><button>Open</button></p></div></form>",
    )


def refusal_page(title: str, why: str) -> str:
    return _page(title, f'<div class="box"><div><h1>Refused</h1><p>{escape(why)}</p></div></div>')


def _page(title: str, body: str, head: str = "") -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style>{head}</head>"
        f"<body>{body}</body></html>"
    )
