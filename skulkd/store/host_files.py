"""Sending files of the store: sendfile, ranges, and conditions that hold for checksums' sake.

aiohttp's file response does the work. It does not know `If-Range` with an entity tag, on which a
resuming client relies not to glue two versions of a file together.
"""

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from multidict import CIMultiDict


class StoreFile(web.FileResponse):
    """A file of a model; always as plain bytes."""

    def __init__(self, path: str) -> None:
        super().__init__(path, headers={"Content-Type": "application/octet-stream"})
        self._file = path

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        return await super().prepare(_as_asked(request, self._file))


def _as_asked(request: web.BaseRequest, path: str) -> web.BaseRequest:
    """The request without what must not be honoured."""
    dropped = {"Accept-Encoding"}  # a neighbour called x.gz is another file, not a form of x
    condition = request.headers.get("If-Range", "")
    if condition.startswith(('"', "W/")) and condition != _entity_tag(path):
        dropped.add("Range")
    headers = CIMultiDict(
        (name, value) for name, value in request.headers.items() if name.title() not in dropped
    )
    return request.clone(headers=headers)


def _entity_tag(path: str) -> str:
    """As aiohttp writes it."""
    import os

    try:
        stat = os.stat(path)  # noqa: PTH116 - called for every range, and only this is needed
    except OSError:
        return ""
    return f'"{stat.st_mtime_ns:x}-{stat.st_size:x}"'
