"""The root command and the table of all commands. Modules are named here, not imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import typer

from skulkctl.cli.command import Entry, LazyGroup, new_app
from skulkctl.cli.options import Display, Output, Reach, Version

ABOUT = """Operate a Skulk cluster from the command line.

Data goes to stdout, everything else to stderr. The options below may also follow the command.
For exit codes, environment variables, output formats and names, run: skulkctl help TOPIC.
"""

EXAMPLES = """
Examples:
  skulkctl status                      show nodes, models and problems
  skulkctl nodes -o wide               list the nodes with their hardware
  skulkctl model pull demo             download a small model to the cluster
  skulkctl place SmolLM2 --wait        load it
  skulkctl chat                        chat with it
  skulkctl doctor --expect-nodes 3     run the health checks; exit 7 if one fails
  skulkctl diagnose --endpoint kite2   show one node in detail
  skulkctl timeline                    show which rank is stuck, since when, and what to do
"""

PANELS: Mapping[str, Mapping[str, Entry]] = {
    "Look": {
        "status": Entry("skulkctl.commands.status", "Show nodes, memory, instances and problems."),
        "nodes": Entry("skulkctl.commands.nodes", "List the nodes of the cluster."),
        "instances": Entry("skulkctl.commands.instances", "List the placed models."),
        "models": Entry("skulkctl.commands.models", "List the models that can be placed."),
        "load": Entry("skulkctl.commands.load", "Show active work and free slots."),
        "ui": Entry("skulkctl.commands.ui", "Open the full-screen application."),
        "top": Entry("skulkctl.commands.top", "Watch nodes and runners live."),
        "events": Entry("skulkctl.commands.events", "Show the cluster's events."),
        "logs": Entry("skulkctl.commands.logs", "Show the log of a node or a runner."),
    },
    "Place": {
        "preview": Entry(
            "skulkctl.commands.preview", "Show how a model can be placed, or why it cannot."
        ),
        "place": Entry("skulkctl.commands.place", "Place a model on the cluster."),
        "wait": Entry("skulkctl.commands.wait", "Wait until an instance is ready or deleted."),
        "swap": Entry("skulkctl.commands.swap", "Replace one model with another."),
        "delete": Entry("skulkctl.commands.delete", "Unload a model."),
    },
    "Talk": {
        "chat": Entry(
            "skulkctl.commands.chat", "Send a prompt to a placed model, or start a chat."
        ),
        "probe": Entry("skulkctl.commands.probe", "Check that a placed model responds."),
        "bench": Entry("skulkctl.commands.bench", "Measure a placed model under load."),
        "cancel": Entry("skulkctl.commands.cancel", "Cancel a request."),
        "launch": Entry(
            "skulkctl.commands.launch", "Set up or run another program with this cluster."
        ),
    },
    "Hunt": {
        "timeline": Entry(
            "skulkctl.commands.timeline", "Show what every rank does and which one is stuck."
        ),
        "doctor": Entry("skulkctl.commands.doctor", "Run the health checks."),
        "diagnose": Entry("skulkctl.commands.diagnose", "Show one node's diagnostics."),
        "capture": Entry(
            "skulkctl.commands.capture", "Save an instance's diagnostics to one file."
        ),
        "trace": Entry("skulkctl.commands.trace", "Measure where requests spend their time."),
    },
    "Storage": {
        "model": Entry("skulkctl.commands.model", "Download, import and register models."),
        "storage": Entry(
            "skulkctl.commands.storage", "Show staged models and disk usage per node."
        ),
        "store": Entry("skulkctl.commands.store", "List the models in the shared store."),
        "purge-staging": Entry(
            "skulkctl.commands.purge_staging", "Delete unused staged copies of models."
        ),
    },
    "Operate": {
        "drain": Entry("skulkctl.commands.drain", "Take a node out of rotation."),
        "undrain": Entry("skulkctl.commands.undrain", "Return a node to rotation."),
        "restart": Entry("skulkctl.commands.restart", "Restart the daemon of one node."),
        "config": Entry("skulkctl.commands.config", "Show, change or check the configuration."),
    },
    "Gateway": {
        "swarm": Entry("skulkctl.commands.swarm", "Offer models through an mswarm gateway."),
    },
    "Set up": {
        "context": Entry("skulkctl.commands.context", "Manage named clusters and select one."),
        "token": Entry("skulkctl.commands.token", "Create, list and revoke access tokens."),
        "tls": Entry("skulkctl.commands.tls", "Issue and check the cluster's certificates."),
        "api": Entry("skulkctl.commands.api", "Send one HTTP request and print the response."),
        "completion": Entry("skulkctl.commands.completion", "Print or install shell completion."),
        "man": Entry("skulkctl.commands.man", "Show the man page of a command."),
        "help": Entry("skulkctl.commands.help", "Explain a command or a topic."),
    },
}
"""What commands are for, in the order of the help."""

COMMANDS: Mapping[str, Entry] = {
    name: entry._replace(panel=panel)
    for panel, entries in PANELS.items()
    for name, entry in entries.items()
}


def build(entries: Mapping[str, Entry] = COMMANDS) -> LazyGroup:
    """The root command over a table of commands."""

    class Root(LazyGroup):
        groups = (Reach, Output, Display, Version)

    Root.entries = entries
    app = new_app(ABOUT, Root)
    app.info.epilog = EXAMPLES
    return cast(Root, typer.main.get_command(app))
