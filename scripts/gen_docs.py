"""Man pages, completion files and the command reference, made from the live command trees.

`python scripts/gen_docs.py` writes them, `--check` names the stale ones and exits 1.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

Rows = Sequence[tuple[str, str]]
NOTE = "made by scripts/gen_docs.py from the command tree; do not edit"

FILES: Rows = [
    ("~/.config/skulk/skulk.yaml", "Configuration of the daemon."),
    ("~/.config/skulk/skulkctl.toml", "Contexts of skulkctl."),
    ("~/.config/skulk/cluster.secret", "Secret of the cluster, made at the first start."),
    ("~/.cache/skulk/chat_history", "What was typed in conversations of skulkctl chat."),
    ("~/.cache/skulk/crashes/", "Reports of skulkctl failures."),
]

DAEMON_EXITS: Rows = [
    ("0", "stopped as asked"),
    ("1", "failed"),
    ("2", "usage: the command line makes no sense"),
    ("70", "a background task kept failing; start it again"),
    ("75", "the port is taken"),
    ("78", "the configuration is not valid"),
]


@dataclass(frozen=True)
class Page:
    """One command, described without saying in which format."""

    path: str
    summary: str
    usage: str
    paragraphs: Sequence[str]
    arguments: Rows
    options: Rows
    examples: Sequence[str]
    commands: Rows = ()
    children: Sequence[Page] = field(default_factory=tuple)

    @property
    def file(self) -> str:
        return f"{self.path.replace(' ', '-')}.1"


def describe(command: Any, path: str, parent: Any = None) -> Page:
    """A command and everything below it."""
    from skulkctl.cli.command import argument_name, is_argument, new_context, usage_pieces

    context = new_context(command, path.rpartition(" ")[2], parent)
    paragraphs = [
        " ".join(part.split()) for part in inspect.cleandoc(command.help or "").split("\n\n")
    ]
    names = command.list_commands(context) if hasattr(command, "list_commands") else []
    children = [
        describe(command.get_command(context, name), f"{path} {name}", context) for name in names
    ]
    params = command.get_params(context)
    return Page(
        path=path,
        summary=paragraphs[0].split(". ")[0].rstrip(".:"),
        usage=" ".join([path, *usage_pieces(command.collect_usage_pieces(context))]),
        paragraphs=paragraphs,
        arguments=[(argument_name(p), p.help or "") for p in params if is_argument(p)],
        options=[(spelling(p), p.help or "") for p in params if not is_argument(p)],
        examples=example_lines(command.epilog or ""),
        commands=[
            (name, summary_of(command, child)) for name, child in zip(names, children, strict=True)
        ],
        children=children,
    )


def summary_of(group: Any, child: Page) -> str:
    """The line of the group's own help, where it has one."""
    entry = getattr(group, "entries", {}).get(child.path.rpartition(" ")[2])
    return entry.summary.rstrip(".") if entry else child.summary


def spelling(param: Any) -> str:
    """`-o, --output FORMAT`, short names first."""
    names = ", ".join(sorted((*param.opts, *param.secondary_opts), key=len))
    takes_value = not (param.is_flag or getattr(param, "count", False))
    return f"{names} {param.metavar or param.name.upper()}" if takes_value else names


def example_lines(epilog: str) -> list[str]:
    lines = [line.rstrip() for line in inspect.cleandoc(epilog).splitlines()]
    return [line.strip() for line in lines if line and line != "Examples:"]


def walk(page: Page) -> Iterator[Page]:
    yield page
    for child in page.children:
        yield from walk(child)


# --- man pages -------------------------------------------------------------------------------


def roff(text: str) -> str:
    """Text that groff prints as it is."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return f"\\&{escaped}" if escaped.startswith(".") else escaped


def man_page(page: Page, version: str, exits: Rows, more: Sequence[str] = ()) -> str:
    program = page.path.partition(" ")[0]
    lines = [
        f'.\\" {NOTE}',
        f'.TH "{page.path.replace(" ", "-").upper()}" 1 "" "{program} {version}" "Skulk Toolkit"',
        ".SH NAME",
        f"{roff(page.path.replace(' ', '-'))} \\- {roff(page.summary)}",
        ".SH SYNOPSIS",
        f".B {roff(page.usage)}",
        ".SH DESCRIPTION",
        *man_paragraphs(page.paragraphs),
        *man_rows("ARGUMENTS", page.arguments),
        *man_rows("OPTIONS", page.options),
        *man_rows("COMMANDS", page.commands),
        *more,
        *man_examples(page.examples),
        *man_rows("EXIT STATUS", exits),
        *man_see_also(page),
    ]
    return "\n".join(lines) + "\n"


def man_paragraphs(paragraphs: Sequence[str]) -> list[str]:
    return [line for text in paragraphs for line in (".PP", roff(text))]


def man_rows(title: str, rows: Rows) -> list[str]:
    if not rows:
        return []
    return [f".SH {title}", *(part for name, text in rows for part in man_row(name, text))]


def man_row(name: str, text: str) -> list[str]:
    return [".TP", f".B {roff(name)}", roff(text) or "\\&"]


def man_examples(examples: Sequence[str]) -> list[str]:
    return [".SH EXAMPLES", ".nf", *(roff(line) for line in examples), ".fi"] if examples else []


def man_see_also(page: Page) -> list[str]:
    program = page.path.partition(" ")[0]
    others = [] if page.path == program else [program]
    others += [child.path.replace(" ", "-") for child in page.children if program == "skulkctl"]
    others += ["skulkd"] if page.path == "skulkctl" else []
    others += ["skulkctl"] if page.path == "skulkd" else []
    listed = ",\n".join(f".BR {roff(name)} (1)" for name in sorted(others))
    return [".SH SEE ALSO", listed.replace("(1),", "(1) ,")]


def man_columns(page: Page) -> list[str]:
    from skulkctl.cli.resources import RESOURCES

    resource = RESOURCES.get(page.path.partition(" ")[2])
    if resource is None:
        return []
    return man_rows("COLUMNS", [(column.name, column_text(column)) for column in resource.columns])


def column_text(column: Any) -> str:
    where = " Only with -o wide." if column.wide else ""
    where = " Not with -o wide." if column.only_narrow else where
    return f"{column.about}{where} JSON: {column.path}"


def man_daemon_commands(page: Page) -> list[str]:
    """The daemon's few commands, on its own page."""
    lines = []
    for child in [command for command in walk(page) if not command.children]:
        lines += [f".SS {roff(child.usage)}", *man_paragraphs(child.paragraphs)]
        lines += [part for name, text in child.options for part in man_row(name, text)]
    return lines


# --- the reference page ----------------------------------------------------------------------


def markdown(page: Page) -> str:
    from skulkctl.cli.resources import RESOURCES

    resource = RESOURCES.get(page.path.partition(" ")[2])
    columns = [(c.name, column_text(c)) for c in resource.columns] if resource else []
    parts = [
        f"## {page.path}",
        f"```\n{page.usage}\n```",
        *page.paragraphs,
        md_table("Argument", page.arguments),
        md_table("Option", page.options),
        md_table("Column", columns),
        md_table("Command", page.commands),
        "```\n" + "\n".join(page.examples) + "\n```" if page.examples else "",
    ]
    return "\n\n".join(part for part in parts if part)


def md_table(title: str, rows: Rows) -> str:
    if not rows:
        return ""
    lines = [f"| {title} | |", "|---|---|"]
    lines += [f"| `{name}` | {text.replace('|', chr(92) + '|')} |" for name, text in rows]
    return "\n".join(lines)


def reference(pages: Sequence[Page], daemon: Page) -> str:
    from skulkctl.cli.topics import ENVIRONMENT, FORMATS
    from skulkctl.exits import MEANINGS

    intro = [
        "# Command reference",
        f"<!-- {NOTE} -->",
        "Every command, its options and its columns. The same texts are in the man pages.",
        md_table("Exit code", [(str(int(code)), text) for code, text in MEANINGS.items()]),
        md_table("Variable", list(ENVIRONMENT.items())),
        md_table("Format", list(FORMATS.items())),
    ]
    parts = [*intro, *(markdown(page) for page in pages)]
    parts += [markdown(page) for page in walk(daemon)]
    parts.append(md_table("Exit code of skulkd", DAEMON_EXITS))
    return "\n\n".join(parts) + "\n"


# --- files -----------------------------------------------------------------------------------


def generate() -> dict[Path, str]:
    """Every generated file and its text."""
    import typer

    from skulkctl.cli.completion import FILES as COMPLETIONS
    from skulkctl.cli.completion import SCRIPTS
    from skulkctl.cli.root import build
    from skulkctl.cli.topics import ENVIRONMENT
    from skulkctl.exits import MEANINGS
    from skulkd import __version__
    from skulkd.__main__ import app as daemon_app

    pages = list(walk(describe(build(), "skulkctl")))
    daemon = describe(typer.main.get_command(daemon_app), "skulkd")
    exits = [(str(int(code)), text) for code, text in MEANINGS.items()]
    root_more = [*man_rows("ENVIRONMENT", list(ENVIRONMENT.items())), *man_rows("FILES", FILES)]
    made = {ROOT / "completions" / COMPLETIONS[shell]: text for shell, text in SCRIPTS.items()}
    for page in pages:
        more = man_columns(page) if " " in page.path else root_more
        made[ROOT / "man" / page.file] = man_page(page, __version__, exits, more)
    daemon_more = [*man_daemon_commands(daemon), *man_rows("FILES", FILES[:1])]
    made[ROOT / "man" / daemon.file] = man_page(daemon, __version__, DAEMON_EXITS, daemon_more)
    made[ROOT / "docs" / "reference.md"] = reference(pages, daemon)
    return made


def stale_files(made: dict[Path, str]) -> list[Path]:
    """Files that differ from what they should be, are missing, or have no command any more."""
    differing = [
        path
        for path, text in made.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    present = [*(ROOT / "man").glob("*"), *(ROOT / "completions").glob("*")]
    return sorted([*differing, *(path for path in present if path not in made)])


def main(arguments: Sequence[str]) -> int:
    made = generate()
    stale = stale_files(made)
    if "--check" in arguments:
        for path in stale:
            print(f"error: {path.relative_to(ROOT)} is stale", file=sys.stderr)
        if stale:
            print("hint: make docs", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        if path in made:
            path.parent.mkdir(exist_ok=True)
            path.write_text(made[path], encoding="utf-8")
        else:
            path.unlink()
        print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
