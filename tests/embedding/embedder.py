"""A real runner process with an embedding model, as a function from texts to vectors."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from skulkd.runner.protocol import Output, TaskStatus
from skulkd.wire.ids import CommandId, ModelId, TaskId
from skulkd.wire.tasks import TextEmbedding, TextEmbeddingTaskParams
from tests.runner.runner_process import INSTANCE, Runner

Input = str | list[int]


@dataclass
class Embedder:
    runner: Runner
    model: Path
    _numbers: Any = field(default_factory=lambda: count(1))

    def send(self, inputs: Sequence[Input], *, trace: bool = False, **params: Any) -> TaskId:
        task_id = TaskId(f"embed-{next(self._numbers)}")
        self.runner.run(
            TextEmbedding(
                task_id=task_id,
                instance_id=INSTANCE,
                command_id=CommandId(f"command-{task_id}"),
                trace_enabled=trace,
                task_params=TextEmbeddingTaskParams(
                    model=ModelId("org/model"), input=list(inputs), **params
                ),
            )
        )
        return task_id

    def outputs(self, task_id: TaskId) -> list[Output]:
        """Of a task that has to complete."""
        answer = self.runner.answer(task_id)
        assert answer.status.status == "Complete", answer.status
        return answer.outputs

    def vectors(self, task_id: TaskId) -> npt.NDArray[np.float32]:
        """One row for each input."""
        items = [item for output in self.outputs(task_id) for item in output.embeddings]
        rows = {item.index: np.frombuffer(b64decode(item.vector), dtype="<f4") for item in items}
        assert sorted(rows) == list(range(len(items)))
        return np.stack([rows[index] for index in range(len(items))])

    def embed(self, inputs: Sequence[Input], **params: Any) -> npt.NDArray[np.float32]:
        return self.vectors(self.send(inputs, **params))

    def refusal(self, inputs: Sequence[Input], **params: Any) -> TaskStatus:
        final = self.runner.answer(self.send(inputs, **params)).status
        assert final.status == "Failed"
        return final
