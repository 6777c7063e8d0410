"""A headless Chromium, driven through its DevTools protocol with aiohttp's websocket."""

from __future__ import annotations

import asyncio
import base64
import itertools
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.fork_server import die_with_parent

_LISTENING = re.compile(rb"DevTools listening on (ws://\S+)")
DEADLINE_S = 300.0
# xterm draws on a canvas. This gives tests the terminal's own buffer, which is what is drawn.
_KEEP_TERMINAL = """
Object.defineProperty(Object.prototype, 'webglAddon', {configurable: true, set(addon) {
  window.shownTerminal = this.terminal;
  Object.defineProperty(this, 'webglAddon', {value: addon, writable: true});
}});
"""
_TEXT = """
(() => {
  const shown = window.shownTerminal;
  if (!shown) return document.body ? document.body.innerText : '';
  const buffer = shown.buffer.active, lines = [];
  for (let row = 0; row < shown.rows; row++) {
    lines.push(buffer.getLine(buffer.baseY + row)?.translateToString(true) ?? '');
  }
  return lines.join('\\n');
})()
"""


def find_chromium() -> str:
    """Skips the test where there is none."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    return found


class Tab:
    """One page."""

    def __init__(self, browser: Browser, session_id: str) -> None:
        self._browser = browser
        self._session_id = session_id

    async def send(self, method: str, **params: Any) -> dict[str, Any]:
        return await self._browser.send(method, self._session_id, **params)

    async def open(self, url: str) -> None:
        await self.send("Page.enable")
        await self.send("Page.addScriptToEvaluateOnNewDocument", source=_KEEP_TERMINAL)
        await self.send("Page.navigate", url=url)

    async def evaluate(self, script: str) -> Any:
        answer = await self.send(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    async def text(self) -> str:
        """What the page shows: the terminal's lines, or else the text of the document."""
        return str(await self.evaluate(_TEXT))

    async def wait_for(self, condition: Callable[[str], bool], what: str) -> str:
        """The text that meets the condition."""
        text = ""
        try:
            async with asyncio.timeout(DEADLINE_S):
                while not condition(text := await self.text()):  # noqa: ASYNC110 (the page is asked)
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"waited in vain for {what}; shown was:\n{text}") from None
        return text

    async def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            given = {"text": key} if kind == "keyDown" else {}
            await self.send("Input.dispatchKeyEvent", type=kind, key=key, **given)

    async def type(self, text: str) -> None:
        await self.send("Input.insertText", text=text)

    async def screenshot(self) -> bytes:
        answer = await self.send("Page.captureScreenshot", format="png")
        return base64.b64decode(answer["data"])


class Browser:
    """A connection to the whole browser; tabs are sessions in it."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}

    async def read(self) -> None:
        async for message in self._socket:
            answer = message.json()
            waiting = self._waiting.pop(answer.get("id", 0), None)
            if waiting is not None and not waiting.done():
                waiting.set_result(answer)

    async def send(self, method: str, session_id: str = "", **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        self._waiting[number] = asyncio.get_running_loop().create_future()
        request: dict[str, Any] = {"id": number, "method": method, "params": params}
        if session_id:
            request["sessionId"] = session_id
        await self._socket.send_json(request)
        answer = await asyncio.wait_for(self._waiting[number], DEADLINE_S)
        assert "error" not in answer, (method, answer["error"])
        return answer["result"]

    async def new_tab(self, width: int = 1280, height: int = 800) -> Tab:
        target = await self.send(
            "Target.createTarget", url="about:blank", width=width, height=height, newWindow=True
        )
        attached = await self.send(
            "Target.attachToTarget", targetId=target["targetId"], flatten=True
        )
        return Tab(self, attached["sessionId"])


@asynccontextmanager
async def browsing(profile: Path, *options: str) -> AsyncIterator[Browser]:
    """A browser that is gone when the block ends."""
    command = [
        find_chromium(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        "--disable-background-networking", "--no-first-run", "--remote-debugging-port=0",
        f"--user-data-dir={profile}", *options, "about:blank",
    ]  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        *command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        preexec_fn=die_with_parent,
        limit=1 << 20,
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not (found := _LISTENING.search(line := await process.stderr.readline())):
                assert line, "chromium ended"
        drain = asyncio.create_task(process.stderr.read())
        async with aiohttp.ClientSession() as client:
            async with client.ws_connect(found[1].decode(), max_msg_size=0) as socket:
                browser = Browser(socket)
                reader = asyncio.create_task(browser.read())
                yield browser
            await reader
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
    await drain
