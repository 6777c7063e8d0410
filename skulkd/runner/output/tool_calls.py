"""Takes tool calls out of streamed text and passes the rest on. Pure."""

from skulkd.runner.output.stopping import held_back
from skulkd.runner.output.tool_formats import NotAToolCall, ToolFormat
from skulkd.wire.chat import ToolCallItem


class ToolExtractor:
    """Calls are whole or not there: a section that cannot be parsed is shown as text.

    White space before a call and between calls is not part of the answer.
    """

    def __init__(self, tool_format: ToolFormat, *, only_one: bool = False) -> None:
        self._format = tool_format
        self._only_one = only_one
        self._section: str | None = None
        self._marked = False
        self._held = ""
        # Leading white space, kept until it is known whether text or a call follows it.
        self._leading = True
        self._space = ""
        self.calls: list[ToolCallItem] = []

    @property
    def complete(self) -> bool:
        """Whether the one call that is wanted is here, so that decoding can end."""
        return self._only_one and bool(self.calls)

    def push(self, text: str) -> str:
        """Text that is no part of a call."""
        text = self._held + text
        self._held = ""
        shown = ""
        while text and not self.complete:
            step = self._outside if self._section is None else self._inside
            text, visible = step(text)
            shown += visible
        return shown

    def finish(self) -> str:
        """What is left at the end of the answer: an open section is closed here."""
        shown = ""
        if self.complete:
            return shown
        if self._section is not None:
            section, self._section = self._section, None
            shown += self._parse(section)
        shown += self._show(self._held)
        if not self.calls:
            shown += self._space
        self._held = self._space = ""
        return shown

    def _outside(self, text: str) -> tuple[str, str]:
        """(what is still to read, what to show)."""
        if self._format.whole and self._leading and not self.calls:
            lead = text.lstrip()
            if lead.startswith("{"):
                self._section, self._marked = "", False
                return lead, self._show(text[: len(text) - len(lead)])
        at = text.find(self._format.begin)
        if at >= 0:
            self._section, self._marked = "", True
            return text[at + len(self._format.begin) :], self._show(text[:at])
        keep = len(text) - held_back(text, (self._format.begin,))
        self._held = text[keep:]
        return "", self._show(text[:keep])

    def _inside(self, text: str) -> tuple[str, str]:
        section = (self._section or "") + text
        end = self._format.end
        if not end or end not in section:
            self._section = section
            return "", ""
        body, _, after = section.partition(end)
        self._section = None
        return after, self._parse(body, end)

    def _parse(self, body: str, end: str = "") -> str:
        try:
            calls = self._format.parse(body)
        except NotAToolCall:
            return self._show(f"{self._format.begin if self._marked else ''}{body}{end}")
        self.calls += calls[:1] if self._only_one else calls
        self._leading, self._space = True, ""
        return ""

    def _show(self, text: str) -> str:
        if not self._leading:
            return text
        text = self._space + text
        solid = text.lstrip()
        if not solid:
            self._space = text
            return ""
        self._leading, self._space = False, ""
        return solid if self.calls else text
