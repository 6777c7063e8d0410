"""What is wrong with a placement, and what to do: one pure judgement for every view.

`judge` feeds the TUI's banner, `timeline --check`, `doctor` and `-o json`, so that they can
never disagree. It sees only what a timeline shows and asks nobody.
"""

from skulkctl.verdict.judge import judge
from skulkctl.verdict.shape import PROBLEMS, Culprit, Deadline, Finding, Judgement, Limits, State

__all__ = ["PROBLEMS", "Culprit", "Deadline", "Finding", "Judgement", "Limits", "State", "judge"]
