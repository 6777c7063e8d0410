"""Serves the application to browsers: `textual-serve` behind our own rules of access.

Every visitor gets a process of their own, `skulkctl ui` with another driver, which ends with the
page. Imported only by `ui --serve`, because it needs the extra `web`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import shlex
import signal
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from aiohttp import WSCloseCode, web
from textual_serve.app_service import AppService
from textual_serve.server import Server

from skulkctl.errors import CliError
from skulkctl.web.access import Access, Address
from skulkctl.web.pages import HEADERS, POLICY, login_page, refusal_page, terminal_page

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

MOST_SESSIONS = 16
COLUMNS, ROWS = range(20, 501), range(5, 201)
_STOP_S = 5.0
_LOGIN_BYTES = 8192
_HTML = "text/html"


class Session(AppService):
    """The process behind one page."""

    def __init__(self, argv: Sequence[str], server: WebServer, socket: web.WebSocketResponse):
        super().__init__(
            shlex.join(argv),
            write_bytes=socket.send_bytes,
            write_str=socket.send_str,
            close=socket.close,  # type: ignore[arg-type]
            download_manager=server.download_manager,
        )
        self._argv = argv

    async def _open_app_process(
        self, width: int = 80, height: int = 24
    ) -> asyncio.subprocess.Process:
        # No shell. A session of its own: Ctrl-C is for the server, which then ends this process.
        self._process = process = await asyncio.create_subprocess_exec(
            *self._argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._build_environment(width=width, height=height),
            start_new_session=True,
        )
        self._stdin = process.stdin
        return process

    async def stop(self) -> None:
        """End the process: by asking it, or by force when it does not answer."""
        try:
            async with asyncio.timeout(_STOP_S):
                await super().stop()
        except TimeoutError:
            logging.getLogger("textual-serve").warning("a session did not end and was killed")
        if self._process is not None:
            if self._process.returncode is None:
                self._process.kill()
            await self._process.wait()


class WebServer(Server):
    """One application, given to every browser that may see it."""

    def __init__(self, argv: Sequence[str], access: Access, title: str) -> None:
        super().__init__(shlex.join(argv), access.address.host, access.address.port, title)
        self._argv = argv
        self._access = access
        self._open: set[web.WebSocketResponse] = set()

    async def _make_app(self) -> web.Application:
        app = web.Application(middlewares=[self._guard], client_max_size=_LOGIN_BYTES)
        app.add_routes(
            [
                web.get("/", self.handle_page, name="index"),
                web.post("/login", self.handle_login),
                web.get("/ws", self.handle_websocket, name="websocket"),
                web.get("/download/{key}", self.handle_download, name="download"),
                web.static("/static", self.statics_path, name="static"),
            ]
        )
        app.on_response_prepare.append(_add_headers)
        app.on_shutdown.append(self.on_shutdown)
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Only our own page, and where a token is needed only those who have shown it."""
        problem = self._access.problem(request.path, request.headers)
        if problem is not None:
            return _html(refusal_page(self.title, problem), 403)
        if request.path == "/login" or self._access.admits(request.cookies):
            return await handler(request)
        return _html(login_page(self.title), 401)

    async def handle_page(self, request: web.Request) -> web.StreamResponse:
        return _html(terminal_page(self.title, request.host, request.query.get("fontsize")))

    async def handle_login(self, request: web.Request) -> web.StreamResponse:
        typed = (await request.post()).get("token")
        if not isinstance(typed, str) or not self._access.accepts(typed.strip()):
            return _html(login_page(self.title, wrong=True), 401)
        answer = web.Response(status=303, headers={"Location": "/"})
        answer.set_cookie(
            self._access.cookie, self._access.session, httponly=True, samesite="Strict"
        )
        return answer

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        if len(self._open) >= MOST_SESSIONS:
            raise web.HTTPServiceUnavailable(text="too many sessions are open")
        page = web.WebSocketResponse(heartbeat=15)
        self._open.add(page)
        session = Session(self._argv, self, page)
        try:
            await page.prepare(request)
            columns, rows = request.query.get("width"), request.query.get("height")
            await session.start(_size(columns, COLUMNS, 80), _size(rows, ROWS, 24))
            await self._process_messages(page, session)
        finally:
            self._open.discard(page)
            await session.stop()
        return page

    async def on_shutdown(self, app: web.Application) -> None:
        for page in tuple(self._open):
            await page.close(code=WSCloseCode.GOING_AWAY, message=b"the server stops")


def _size(typed: str | None, allowed: range, usual: int) -> int:
    return int(typed) if typed and typed.isdecimal() and int(typed) in allowed else usual


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(HEADERS)
    response.headers["Content-Security-Policy"] = POLICY.format(host=request.host)


def _html(text: str, status: int = 200) -> web.Response:
    return web.Response(text=text, status=status, content_type=_HTML)


def listen(address: Address) -> tuple[socket.socket, Address]:
    """A bound socket, and the address with its real port. Raises CliError."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        bound = socket.create_server((address.host, address.port), family=family)
    except OSError as error:
        hints = ["use a free port:  skulkctl ui --serve 127.0.0.1:0"]
        raise CliError(
            f"cannot serve on {address.host}:{address.port}", str(error.strerror), hints=hints
        ) from error
    return bound, replace(address, port=bound.getsockname()[1])


def host_names() -> frozenset[str]:
    """What this machine calls itself."""
    name = socket.gethostname().lower()
    short = name.partition(".")[0]
    return frozenset({name, short, f"{short}.local"})


def serve(
    argv: Sequence[str],
    address: Address,
    token: str | None,
    title: str,
    ready: Callable[[Address], None],
) -> None:
    """Serve until interrupted. `ready` is called once with the real address."""
    bound, address = listen(address)
    access = Access(address, host_names(), token, secrets.token_urlsafe(32))
    asyncio.run(_run(WebServer(argv, access, title), bound, lambda: ready(address)))


async def _run(server: WebServer, bound: socket.socket, ready: Callable[[], None]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for wanted in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(wanted, stop.set)
    runner = web.AppRunner(await server._make_app(), access_log=None, shutdown_timeout=2 * _STOP_S)
    await runner.setup()
    try:
        await web.SockSite(runner, bound).start()
        ready()
        await stop.wait()
    finally:
        await runner.cleanup()
