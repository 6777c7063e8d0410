"""The form that places a model: what to place and how, and what the planner says to it now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.suggester import SuggestFromList
from textual.widgets import Button, Input, Label, Select

from skulkctl.errors import CliError
from skulkctl.output.units import size_text
from skulkctl.placement.previews import PreviewItem, preview_items
from skulkctl.ui.dialogs import ConfirmScreen, Dialog, confirm
from skulkctl.ui.lines import Line, bar, line, wrap
from skulkctl.ui.widgets import LinesView

if TYPE_CHECKING:
    from skulkctl.placement.instances import InstanceItem
    from skulkctl.placement.plans import RankItem
    from skulkctl.ui.app import SkulkApp
    from skulkd.wire.placement import PlaceInstanceParams

_PAUSE_S = 0.3
"""The planner is asked when nothing was typed for this long."""


def open_form(app: SkulkApp, instead_of: InstanceItem | None = None) -> None:
    """Place a model; with `instead_of`, and unload that one."""
    if app.setup.reader is not None and app.setup.actions is not None:
        app.push_screen(PlaceScreen(instead_of))


class PlaceScreen(Dialog[None]):
    """Model, sharding, link and number of nodes; below them every placement with its arithmetic."""

    CSS = """
    PlaceScreen > .dialog { width: 96; height: 90%; }
    PlaceScreen .field { height: 1; }
    PlaceScreen .field Label { width: 12; color: $text-muted; }
    PlaceScreen .field Input { width: 1fr; }
    PlaceScreen .field Select { width: 24; }
    PlaceScreen #plans { height: 1fr; border-top: solid $panel; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "cancel", id="place.cancel"),
        Binding("ctrl+s", "place", "place", id="place.place"),
    ]

    def __init__(self, instead_of: InstanceItem | None) -> None:
        super().__init__()
        self._instead_of = instead_of
        self._items: list[PreviewItem] = []
        self._timer: Any = None

    @property
    def skulk(self) -> SkulkApp:
        return cast("SkulkApp", self.app)

    def compose(self) -> ComposeResult:
        old = self._instead_of
        with Vertical(classes="dialog") as box:
            box.border_title = f"swap {old['modelId']} for" if old else "place a model"
            box.border_subtitle = "ctrl+s places, esc closes"
            with Horizontal(classes="field"):
                yield Label("model")
                yield Input(placeholder="id of a model; → completes", id="model", compact=True)
            with Horizontal(classes="field"):
                yield Label("sharding")
                yield Select.from_values(
                    ["Pipeline", "Tensor"], allow_blank=False, id="sharding", compact=True
                )
                yield Label("  link")
                yield Select.from_values(
                    ["MlxRing", "MlxJaccl"], allow_blank=False, id="link", compact=True
                )
            with Horizontal(classes="field"):
                yield Label("min nodes")
                yield Input("1", type="integer", id="nodes", compact=True)
            with VerticalScroll(id="plans", can_focus=False):
                yield LinesView(id="arithmetic")
            with Horizontal(classes="buttons"):
                yield Button("Cancel (esc)", id="no", compact=True)
                yield Button("Place (ctrl+s)", id="yes", variant="primary", compact=True)

    def on_mount(self) -> None:
        super().on_mount()
        self.query_one("#model").focus()
        self.run_worker(self._suggest(), group="models")

    async def _suggest(self) -> None:
        reader = self.skulk.setup.reader
        if reader is None:
            return
        models = await self.skulk.attempt("no list of models", reader.models())
        if models:
            self.query_one("#model", Input).suggester = SuggestFromList(
                sorted(models), case_sensitive=False
            )
            self._say([f"{len(models)} models can be placed, for example:", *sorted(models)[:12]])

    def _say(self, rows: list[str]) -> None:
        self.query_one("#arithmetic", LinesView).show([line((f" {row}", "muted")) for row in rows])

    def on_input_changed(self) -> None:
        self._ask_soon()

    def on_select_changed(self) -> None:
        self._ask_soon()

    def on_input_submitted(self) -> None:
        self.focus_next()

    def _ask_soon(self) -> None:
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_timer(_PAUSE_S, self._ask)

    def _ask(self) -> None:
        if self.query_one("#model", Input).value.strip():
            self.run_worker(self._preview(), group="preview", exclusive=True)

    def params(self) -> PlaceInstanceParams:
        """What the form says."""
        from skulkd.wire.ids import ModelId
        from skulkd.wire.placement import PlaceInstanceParams

        typed = self.query_one("#nodes", Input).value
        return PlaceInstanceParams(
            model_id=ModelId(self.query_one("#model", Input).value.strip()),
            sharding=cast(Any, self.query_one("#sharding", Select).value),
            instance_meta=cast(Any, self.query_one("#link", Select).value),
            min_nodes=max(1, int(typed)) if typed.isdigit() else 1,
        )

    async def _preview(self) -> None:
        reader, snapshot = self.skulk.setup.reader, self.skulk.snapshot
        if reader is None or snapshot is None or snapshot.cluster is None:
            return
        wanted = self.params()
        try:
            answer = await reader.previews(wanted)
        except CliError as error:
            self._items = []
            self._say([error.what, *error.why, *error.hints])
            return
        self._items = preview_items(snapshot.cluster.state, answer)
        view = self.query_one("#arithmetic", LinesView)
        view.show(preview_lines(self._items, wanted, view.room))

    def on_button_pressed(self, event: Button.Pressed) -> None:
        if event.button.id == "no":
            self.dismiss()
        else:
            self.action_place()

    def action_place(self) -> None:
        wanted, old, app = self.params(), self._instead_of, self.skulk
        if not wanted.model_id:
            self.notify("type the id of a model first", severity="warning")
            return
        if old is None:
            app.run_worker(place(app, wanted), group="act")
            self.dismiss()
            return
        fits = any(item["fits"] for item in self._items)
        how = "fits beside it and is placed first" if fits else "does not fit beside it"
        order = "" if fits else f" {old['modelId']} is unloaded first; no model serves meanwhile."
        why = f"{wanted.model_id} {how}.{order}\n{old['tasks']} requests run on the old one."
        command = f"skulkctl swap {old['id'][:8]} {wanted.model_id}"
        self.dismiss()
        screen = ConfirmScreen(f"swap {old['modelId']} for {wanted.model_id}", why, command)
        confirm(app, screen, lambda: swap(app, wanted, old, fits))


async def place(app: SkulkApp, wanted: PlaceInstanceParams) -> bool:
    """Whether the daemon accepted it."""
    actions = app.setup.actions
    if actions is None:
        return False
    placed = await app.attempt(f"cannot place {wanted.model_id}", actions.place(wanted))
    if placed is None:
        return False
    app.notify(f"{wanted.model_id} as {placed[:8]}", title="placing", markup=False)
    app.action_refresh()
    return True


async def swap(
    app: SkulkApp, wanted: PlaceInstanceParams, old: InstanceItem, fits_beside: bool
) -> None:
    """Place and unload, in the order in which the memory suffices."""
    actions = app.setup.actions
    if actions is None:
        return
    if fits_beside:
        if await place(app, wanted):
            await app.attempt("the old model was not unloaded", actions.delete(old["id"]))
        return
    if await app.attempt("not swapped", actions.delete(old["id"])) is not None:
        await app.until_gone(old["id"])
        await place(app, wanted)


def preview_lines(items: list[PreviewItem], wanted: PlaceInstanceParams, room: int) -> list[Line]:
    """Every candidate; what was asked for first."""
    chosen = [
        item
        for item in items
        if item["link"] == wanted.instance_meta and item["sharding"] == wanted.sharding
    ]
    others = [item for item in items if item not in chosen]
    return [drawn for item in (*chosen, *others) for drawn in _candidate(item, room)]


def _candidate(item: PreviewItem, room: int) -> list[Line]:
    name = f"{item['sharding']} over {item['link']}"
    if not item["fits"]:
        head = line((" ✖ does not fit  ", "problem"), (name, "strong"))
        why = [
            line((f"   {row}", "muted")) for row in wrap(item["reason"] or "", max(20, room - 4))
        ]
        return [head, *why]
    context = item["contextTokenLimit"]
    head = line(
        (" ● fits  ", "ok"), (name, "strong"),
        (f"  on {', '.join(item['nodes'])}{f'  context {context}' if context else ''}", "muted"),
    )  # fmt: skip
    return [head, *(_arithmetic(rank, room) for rank in item["ranks"])]


def _arithmetic(rank: RankItem, room: int) -> Line:
    """`rank 0 kite1  layers 0-8/16  ████░░ 2.1 of 8.0 GiB = weights + overhead + kv + floor`."""
    need, usable = rank.get("needBytes"), rank.get("usableBytes")
    head = f"   {rank['rank']:>2} {rank['node']}  {rank['layers']}  "
    if need is None or not usable:
        weights = rank["weightBytes"]
        return line((head, "muted"), f"weights {size_text(weights)}" if weights else "")
    parts = [
        ("weights", rank["weightBytes"]), ("overhead", rank.get("overheadBytes")),
        ("kv", rank.get("kvBytes")), ("floor", rank.get("floorBytes")),
    ]  # fmt: skip
    told = " + ".join(f"{name} {size_text(size, '')}" for name, size in parts if size)
    cells = max(6, min(16, room - 70))
    return line(
        (head, "muted"), *bar(need / usable, cells, "accent"),
        f" {size_text(need)} of {size_text(usable)}", (f" = {told}", "muted"),
    )  # fmt: skip
