"""The frame of the command line: commands, their options, completion and help topics.

What a command's module needs is imported from here. The frame must not know what any command does.
"""

from skulkctl.cli.command import ListGroup as ListGroup
from skulkctl.cli.command import new_app as new_app
from skulkctl.cli.command import verb as verb
from skulkctl.cli.invocation import Invocation as Invocation
from skulkctl.cli.options import Confirmation as Confirmation
from skulkctl.cli.options import Output as Output
from skulkctl.cli.options import Reach as Reach
from skulkctl.cli.options import Table as Table
from skulkctl.cli.options import duration as duration
from skulkctl.cli.options import moment as moment
from skulkctl.cli.options import size as size
