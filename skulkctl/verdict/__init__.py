"""What is wrong with an instance, and what to do: one pure verdict for every view.

`assess` feeds the TUI's banner, `timeline --check`, `doctor` and `-o json`, so that they can never
disagree. It sees only what a timeline shows and does no I/O.
"""

from skulkctl.verdict.assess import assess
from skulkctl.verdict.findings import (
    PROBLEMS,
    Culprit,
    Deadline,
    Finding,
    Limits,
    State,
    Verdict,
)

__all__ = ["PROBLEMS", "Culprit", "Deadline", "Finding", "Limits", "State", "Verdict", "assess"]
