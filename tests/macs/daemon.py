"""skulkd for a machine whose tools are those of a recorded Mac: `python -m tests.macs.daemon run`.

The command line is skulkd's own; only the platform is said instead of asked.
"""

from functools import partial

import skulkd.node
from skulkd.__main__ import run

if __name__ == "__main__":
    skulkd.node.Options = partial(skulkd.node.Options, platform="darwin")
    run()
