"""The root command and the table of all commands. Modules are named here, not imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import typer

from skulkctl.command import Entry, LazyGroup
from skulkctl.options import ROOT, VERSION, signature

ABOUT = """Look after a Skulk cluster from the command line.

Data goes to stdout, everything else to stderr. The options below may also stand after the
command. Exit codes, environment variables and output formats: skulkctl help TOPIC.
"""

EXAMPLES = """
Examples:
  skulkctl status                      what is here, and is it well
  skulkctl nodes -o wide               every node with its hardware
  skulkctl model pull demo             download a small model to the cluster
  skulkctl place SmolLM2 --wait        load it
  skulkctl chat                        talk to it
  skulkctl doctor --expect-nodes 3     the health checklist; exit 7 when it finds something
  skulkctl diagnose --endpoint kite2   one node in detail
  skulkctl timeline                    which rank is stuck, since when, and what now
"""

COMMANDS: Mapping[str, Entry] = {
    "status": Entry("skulkctl.commands.status", "One screen: nodes, memory, instances, problems."),
    "nodes": Entry("skulkctl.commands.nodes", "List the nodes of the cluster."),
    "instances": Entry("skulkctl.commands.instances", "List the placed models."),
    "models": Entry("skulkctl.commands.models", "List the models that can be placed."),
    "preview": Entry("skulkctl.commands.preview", "Show where a model may go, or why it may not."),
    "place": Entry("skulkctl.commands.place", "Place a model on the cluster."),
    "swap": Entry("skulkctl.commands.swap", "Replace one model by another."),
    "delete": Entry("skulkctl.commands.delete", "Unload a model."),
    "wait": Entry("skulkctl.commands.wait", "Wait until an instance is ready, or gone."),
    "chat": Entry("skulkctl.commands.chat", "Ask a placed model, once or in a conversation."),
    "probe": Entry("skulkctl.commands.probe", "Check that a placed model answers."),
    "cancel": Entry("skulkctl.commands.cancel", "Cancel a request."),
    "model": Entry("skulkctl.commands.model", "Download, import and register models."),
    "storage": Entry("skulkctl.commands.storage", "Show staged models and the disks of nodes."),
    "purge-staging": Entry(
        "skulkctl.commands.purge_staging", "Delete staged copies that nothing uses."
    ),
    "store": Entry("skulkctl.commands.store", "List the models of the shared store."),
    "doctor": Entry("skulkctl.commands.doctor", "Run the health checklist."),
    "diagnose": Entry("skulkctl.commands.diagnose", "Show one node's diagnostics."),
    "capture": Entry("skulkctl.commands.capture", "Write evidence of a placement into one file."),
    "events": Entry("skulkctl.commands.events", "Show what happened in the cluster."),
    "logs": Entry("skulkctl.commands.logs", "Show log lines of a node or a runner."),
    "trace": Entry("skulkctl.commands.trace", "Measure where requests spend their time."),
    "top": Entry("skulkctl.commands.top", "Watch nodes and runners live."),
    "timeline": Entry("skulkctl.commands.timeline", "See where every rank is, and who is stuck."),
    "load": Entry("skulkctl.commands.load", "Show active work and free slots."),
    "drain": Entry("skulkctl.commands.drain", "Take a node out of rotation."),
    "undrain": Entry("skulkctl.commands.undrain", "Bring a node back into rotation."),
    "swarm": Entry("skulkctl.commands.swarm", "Offer models through an mswarm gateway."),
    "config": Entry("skulkctl.commands.config", "Show, change or check the configuration."),
    "token": Entry("skulkctl.commands.token", "Create, list and revoke access tokens."),
    "restart": Entry("skulkctl.commands.restart", "Restart the daemon of one node."),
    "context": Entry("skulkctl.commands.context", "Name clusters and choose between them."),
    "tls": Entry("skulkctl.commands.tls", "Make and check the certificates of a cluster."),
    "api": Entry("skulkctl.commands.api", "Send one request and print the raw answer."),
    "completion": Entry("skulkctl.commands.completion", "Print a shell completion script."),
    "help": Entry("skulkctl.commands.help", "Explain a command or a topic."),
    "__complete": Entry("skulkctl.commands.complete", "Answer a shell's question.", hidden=True),
}


def build(entries: Mapping[str, Entry] = COMMANDS) -> LazyGroup:
    """The root command over a table of commands."""

    class Root(LazyGroup):
        pass

    Root.entries = entries
    app = typer.Typer(
        cls=Root,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        help=ABOUT,
        epilog=EXAMPLES,
        no_args_is_help=True,
    )

    def root(ctx: typer.Context, **values: Any) -> None:
        ctx.obj = values

    vars(root)["__signature__"] = signature(*ROOT.values(), *VERSION.values())
    app.callback()(root)
    return cast(Root, typer.main.get_command(app))
