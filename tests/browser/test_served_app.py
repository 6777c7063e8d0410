"""`skulkctl ui --serve` in a real browser: what a visitor sees, and who is kept out."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import aiohttp
from aiohttp import web

from tests.browser.chromium import Browser, browsing, find_chromium
from tests.cluster_live.cluster import StartCluster
from tests.daemon_process import DaemonProcess, daemon_environ
from tests.fork_server import die_with_parent
from tests.skulkctl_process import start_skulkctl

TOKEN = "a-token-for-visitors-0123456789"
FOREIGN = """
<!doctype html><title>foreign</title><iframe src="TARGET"></iframe><script>
function socket(url) {
  return new Promise(resolve => {
    const opened = new WebSocket(url);
    opened.onopen = () => resolve('opened');
    opened.onerror = () => resolve('refused');
  });
}
async function read(url) {
  try { return (await fetch(url)).status; } catch (error) { return 'refused'; }
}
</script>
<p>the scripts have run</p>
"""


@contextmanager
def serving(home: Path, endpoint: str, *arguments: str, **environ: str) -> Iterator[str]:
    """The URL of the served application. Ctrl-C ends it, with exit 0 and nothing left behind."""
    process = start_skulkctl(
        "ui", "--serve", *arguments, "--endpoint", endpoint,
        env=daemon_environ(home, environ), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, preexec_fn=die_with_parent,
    )  # fmt: skip
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    try:
        yield url
    finally:
        process.send_signal(signal.SIGINT)
        rest, said = process.communicate(timeout=300)
    assert (process.returncode, rest) == (0, ""), said
    assert said.rstrip().endswith("note: stopped serving"), said
    assert "Traceback" not in said, said


@asynccontextmanager
async def foreign_page(target: str) -> AsyncIterator[str]:
    """A page of another origin that tries to use the application."""

    async def page(_: web.Request) -> web.Response:
        return web.Response(text=FOREIGN.replace("TARGET", target), content_type="text/html")

    app = web.Application()
    app.router.add_get("/", page)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


async def test_a_visitor_sees_the_cluster_and_a_foreign_page_does_not(
    cluster: StartCluster, tmp_path: Path
) -> None:
    find_chromium()
    running = cluster(2)
    names = [node.name for node in running.nodes]
    with serving(tmp_path, running.nodes[0].process.url, "127.0.0.1:0") as url:
        port = url.rstrip("/").rpartition(":")[2]
        # What a rebound name looks like: a foreign name that resolves to this machine.
        rebound = f"--host-resolver-rules=MAP rebound.example 127.0.0.1:{port}"
        async with browsing(tmp_path / "profile", rebound) as browser:
            await _shows_the_cluster(browser, url, names, tmp_path)
            await _keeps_out_foreign_pages(browser, url)


async def _shows_the_cluster(browser: Browser, url: str, names: list[str], folder: Path) -> None:
    tab = await browser.new_tab()
    await tab.open(url)
    await tab.wait_for(lambda text: all(name in text for name in names), "the nodes")
    await tab.wait_for(lambda text: "● OK" in text and " links " in text, "a verdict")
    assert "read-only" in await tab.text()
    await tab.evaluate("shownTerminal.focus()")
    await tab.press("3")
    await tab.wait_for(lambda text: " links " not in text and "● OK" in text, "another page")
    (folder / "timeline.png").write_bytes(await tab.screenshot())
    # Nothing comes from elsewhere.
    script = "performance.getEntriesByType('resource').map(entry => new URL(entry.name).origin)"
    assert set(await tab.evaluate(script)) == {url.rstrip("/")}


async def _keeps_out_foreign_pages(browser: Browser, url: str) -> None:
    socket_url = url.replace("http", "ws") + "ws"
    async with foreign_page(url) as address:
        tab = await browser.new_tab()
        await tab.open(address)
        await tab.wait_for(lambda text: "the scripts have run" in text, "the page")
        assert await tab.evaluate(f"socket('{socket_url}')") == "refused"
        assert await tab.evaluate(f"read('{url}')") == "refused"
        assert await tab.evaluate("frames.length") == 1
    await tab.open("http://rebound.example/")
    await tab.wait_for(lambda text: "does not answer for the host" in text, "a refusal")


async def test_elsewhere_visitors_must_show_the_token(
    shared_daemon: DaemonProcess, tmp_path: Path
) -> None:
    find_chromium()
    with serving(tmp_path, shared_daemon.url, "0.0.0.0:0", SKULK_TOKEN=TOKEN) as url:
        async with aiohttp.ClientSession() as client:
            headers = {"Origin": url.rstrip("/"), "Upgrade": "websocket"}
            assert (await client.get(url + "ws", headers=headers)).status == 401
            assert (await client.get(url + "static/js/textual.js")).status == 401
        async with browsing(tmp_path / "profile") as browser:
            tab = await browser.new_tab()
            await tab.open(url)
            await tab.wait_for(lambda text: "Enter the cluster's token" in text, "the form")
            await tab.evaluate("document.querySelector('input').focus()")
            await tab.type("wrong")
            await tab.evaluate("document.querySelector('button').click()")
            await tab.wait_for(lambda text: "not the token" in text, "a complaint")
            await tab.evaluate("document.querySelector('input').focus()")
            await tab.type(TOKEN)
            await tab.evaluate("document.querySelector('button').click()")
            await tab.wait_for(lambda text: shared_daemon.ready_lines[-1].name in text, "the node")
