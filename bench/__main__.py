"""Run the measurements and print them as the table that docs/performance.md keeps."""

from __future__ import annotations

import argparse
import importlib
import platform
import sys

import psutil

from bench.figures import Figure, table

MEASUREMENTS = (
    "startup",
    "throughput",
    "footprint",
    "serve",
    "routing",
    "clients",
    "sharded",
    "blas",
    "placement",
    "cluster",
    "recovery",
    "journal",
    "storage",
    "observe",
    "screens",
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(MEASUREMENTS))
    wanted = parser.parse_args().names or MEASUREMENTS
    if unknown := set(wanted) - set(MEASUREMENTS):
        parser.error(f"no measurement named {', '.join(sorted(unknown))}")
    figures: list[Figure] = []
    for name in wanted:
        print(f"measuring {name} …", file=sys.stderr, flush=True)
        figures += importlib.import_module(f"bench.{name}").run()
    machine = f"{platform.system()} {platform.machine()}, {psutil.cpu_count()} cores"
    print(f"{machine}, Python {platform.python_version()}\n")
    print(table(figures))
    return 0 if all(figure.holds for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
