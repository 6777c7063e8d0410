"""Progress bars drawn by rich, one for each part of the work. Imported only for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from skulkctl.output.progress import BYTES, Part
from skulkctl.output.units import size_text

if TYPE_CHECKING:
    from rich.console import RenderableType


class _Amount(ProgressColumn):
    """`4.2/8.1 GiB  210.0 MiB/s`, or `19/24 layers`."""

    def render(self, task: Task) -> Text:
        if task.total is None:
            return Text("")
        done, total, unit = int(task.completed), int(task.total), task.fields["unit"]
        if unit != BYTES:
            return Text(f"{done}/{total} {unit}")
        whole = size_text(total)
        there = size_text(done).removesuffix(f" {whole.rpartition(' ')[2]}")
        speed = f"  {size_text(int(task.speed))}/s" if task.speed else ""
        return Text(f"{there}/{whole}{speed}")


class _Bar(BarColumn):
    """Nothing where it is not known how much there is to do."""

    def render(self, task: Task) -> RenderableType:  # type: ignore[override]
        return super().render(task) if task.total is not None else Text("")


class Bars(Progress):
    """Started when something is shown first; `stop` takes everything away again."""

    def __init__(self, stream: TextIO) -> None:
        # rich draws once while it is set up.
        self._title = ""
        self._shown: dict[str, TaskID] = {}
        super().__init__(
            SpinnerColumn(finished_text="[green]✔[/green]"),
            TextColumn("{task.fields[part]}", markup=False),
            TextColumn("{task.description}", style="dim", markup=False),
            _Bar(bar_width=24),
            _Amount(),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=Console(file=stream, highlight=False, markup=False, emoji=False),
            transient=True,
            refresh_per_second=8,
        )

    def get_renderables(self) -> Iterable[RenderableType]:
        if self._title:
            yield Text(self._title, no_wrap=True, overflow="ellipsis")
        if self._shown:
            yield self.make_tasks_table(self.tasks)

    def show(self, title: str, parts: Sequence[Part]) -> None:
        self._title = title
        for part in parts:
            self._update(part)
        for gone in set(self._shown).difference(part.name for part in parts):
            self.remove_task(self._shown.pop(gone))
        self.start()
        self.refresh()

    def _update(self, part: Part) -> None:
        about = {"description": part.doing, "part": part.name, "unit": part.unit}
        if part.name not in self._shown:
            self._shown[part.name] = self.add_task(total=part.total, **about)  # type: ignore[arg-type]
        task = self._shown[part.name]
        before = next(each for each in self.tasks if each.id == task)
        if before.fields["unit"] != part.unit or (before.completed > (part.done or 0)):
            self.reset(task, start=True)  # another stage, with a rate of its own
        self.update(task, completed=part.done or 0, total=part.total, **about)  # type: ignore[arg-type]
