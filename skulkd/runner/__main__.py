"""`python -m skulkd.runner --in-fd N --out-fd M`: started by a supervisor, never by hand."""

import argparse

from skulkd.runner.process import serve


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m skulkd.runner")
    parser.add_argument("--in-fd", type=int, required=True, help="messages from the supervisor")
    parser.add_argument("--out-fd", type=int, required=True, help="messages to the supervisor")
    arguments = parser.parse_args()
    serve(arguments.in_fd, arguments.out_fd)


if __name__ == "__main__":
    main()
