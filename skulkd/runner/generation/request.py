"""One generation request and its choices while they are being answered."""

import time
from dataclasses import dataclass, field
from typing import Any

from skulkd.runner.errors import BadRequest, ContextLengthExceeded
from skulkd.runner.generation.grammar import GrammarProcessor, Grammars, forced_tools, schema_of
from skulkd.runner.generation.rows import MAX_TOP_LOGPROBS
from skulkd.runner.generation.sampling import Processor, Sampler, make_processors, make_sampler
from skulkd.runner.model.load import LoadedModel
from skulkd.runner.output.stopping import StopMatcher
from skulkd.runner.output.text_stream import ReasoningSplitter, TextStream
from skulkd.runner.output.tool_calls import ToolExtractor
from skulkd.runner.prompts.prompt import render_prompt, tokenize_prompt, wanted_tools
from skulkd.runner.protocol import GenerationOptions, RunnerOptions
from skulkd.runner.recording.recorder import Owner, PhaseRecorder
from skulkd.wire.chat import FinishReason, LogprobsContentItem
from skulkd.wire.ids import TaskId
from skulkd.wire.tasks import TextGeneration, TextGenerationTaskParams

# The limit of the OpenAI API.
MAX_CHOICES = 128
# What odd values inside a request raise here; it must not end everybody else's answer.
_MALFORMED = (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError)


@dataclass(eq=False, slots=True)
class Choice:
    """One answer: a row of the batch and its text."""

    index: int
    sampler: Sampler
    processors: list[Processor]
    detokenizer: Any
    stream: TextStream
    tokens: int = 0
    reasoning_tokens: int = 0
    unsent_text: str = ""
    unsent_reasoning: str = ""
    unsent_tokens: int = 0
    unsent_logprobs: list[LogprobsContentItem] = field(default_factory=list)
    held_logprobs: list[LogprobsContentItem] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    end_sent: bool = False


@dataclass(eq=False, slots=True)
class Request:
    """`cached` counts prompt tokens that the prefix cache had."""

    task_id: TaskId
    owner: Owner
    prompt: list[int]
    max_tokens: int
    choices: list[Choice]
    top_logprobs: int | None
    waiting: list[Choice] = field(default_factory=list)
    cached: int = 0
    pieces: int = 0
    accepted_at: float = field(default_factory=time.monotonic)
    admitted_at: float = 0.0
    in_flight_at_admission: int = 1
    first_token_at: float = 0.0
    last_token_at: float = field(default_factory=time.monotonic)

    @property
    def done(self) -> bool:
        return all(choice.finish_reason is not None for choice in self.choices)


class RequestBuilder:
    """Turns tasks into requests: template, tokens, limits, samplers, grammar."""

    def __init__(
        self, loaded: LoadedModel, options: RunnerOptions, recorder: PhaseRecorder
    ) -> None:
        self._loaded = loaded
        self._options = options
        self._recorder = recorder
        self._grammars = Grammars(loaded.tokenizer, loaded.vocab_size)
        self._limit = options.context_token_limit or loaded.max_context

    def build(
        self, task: TextGeneration, extra: GenerationOptions, prompt: list[int] | None = None
    ) -> Request:
        """Raises BadRequest, before anything was computed for it.

        `prompt` is what another rank made of the same task, and replaces our own.
        """
        try:
            return self._build(task, extra, Owner(task.task_id, task.command_id), prompt)
        except _MALFORMED as error:
            raise BadRequest(f"the request cannot be understood: {error!r}") from error

    def _build(
        self,
        task: TextGeneration,
        extra: GenerationOptions,
        owner: Owner,
        given: list[int] | None,
    ) -> Request:
        params = task.task_params
        if extra.n > MAX_CHOICES:
            raise BadRequest(f"n is {extra.n}, the limit is {MAX_CHOICES}")
        if params.images or params.image_count:
            self._recorder.point("vision_preprocess", "prepare_vision_failed", owner=owner)
            raise BadRequest("this model takes no images")
        text, prompt = self._prompt(params, extra, owner)
        prompt = prompt if given is None else given
        budget = answer_budget(
            len(prompt),
            params.max_output_tokens,
            self._limit,
            self._options.default_max_tokens,
            name=extra.name_of("max_tokens"),
        )
        thinks = self._loaded.thinking
        opened = thinks is not None and text.rstrip().endswith(thinks.start)
        choices = [
            Choice(
                index=index,
                sampler=make_sampler(params, index, self._loaded.vocab_size),
                processors=self._processors(params, extra, len(prompt), opened=opened),
                detokenizer=self._loaded.tokenizer.detokenizer,
                stream=self._stream(params, extra, opened=opened),
            )
            for index in range(extra.n)
        ]
        self._recorder.point(
            "prompt_build",
            "mlx_generate_start",
            owner=owner,
            memory=True,
            model=params.model,
            input_images=0,
            max_output_tokens=budget,
        )
        return Request(
            task_id=task.task_id,
            owner=owner,
            prompt=prompt,
            max_tokens=budget,
            choices=choices,
            top_logprobs=min(params.top_logprobs or 0, MAX_TOP_LOGPROBS)
            if params.logprobs
            else None,
        )

    def _prompt(
        self, params: TextGenerationTaskParams, extra: GenerationOptions, owner: Owner
    ) -> tuple[str, list[int]]:
        tokenizer, recorder = self._loaded.tokenizer, self._recorder
        span = recorder.enter(
            "prompt_build",
            "batch_apply_chat_template",
            owner=owner,
            image_count=0,
            input_messages=len(params.chat_template_messages or params.input),
        )
        try:
            text = render_prompt(tokenizer, params, extra)
        finally:
            recorder.leave(span)
        with recorder.span(
            "prompt_build",
            "prompt_tokenization",
            owner=owner,
            prompt_chars=len(text),
            seed=params.seed,
        ):
            prompt = tokenize_prompt(tokenizer, text, raw=extra.prompt is not None)
        recorder.point("prompt_build", "prompt_tokenized", owner=owner, prompt_tokens=len(prompt))
        if not prompt:
            raise BadRequest("there is nothing to generate from: the prompt is empty")
        return text, prompt

    def _stream(
        self, params: TextGenerationTaskParams, extra: GenerationOptions, *, opened: bool
    ) -> TextStream:
        stops = [params.stop] if isinstance(params.stop, str) else params.stop or []
        thinks = self._loaded.thinking
        reasoning = ReasoningSplitter(thinks.start, thinks.end, opened=opened) if thinks else None
        tools = None
        if wanted_tools(params, extra):
            tools = ToolExtractor(
                self._loaded.tool_format, only_one=extra.parallel_tool_calls is False
            )
        return TextStream(StopMatcher(stops), reasoning, tools)

    def _processors(
        self,
        params: TextGenerationTaskParams,
        extra: GenerationOptions,
        prompt_tokens: int,
        *,
        opened: bool,
    ) -> list[Processor]:
        processors = make_processors(
            params, extra, prompt_tokens=prompt_tokens, vocab_size=self._loaded.vocab_size
        )
        name = extra.name_of("response_format")
        schema = schema_of(extra.response_format, name)
        forced = forced_tools(wanted_tools(params, extra), extra.tool_choice)
        if forced:
            matcher = self._grammars.tool_matcher(forced, self._loaded.tool_format)
        elif schema is not None:
            matcher = self._grammars.json_matcher(schema, name)
        else:
            return processors
        # Reasoning that the prompt has opened comes first, in free text.
        thinks = self._loaded.thinking
        after = thinks.end_tokens if thinks is not None and opened else ()
        return [*processors, GrammarProcessor(matcher, prompt_tokens, after)]


def answer_budget(
    prompt_tokens: int,
    wanted: int | None,
    limit: int | None,
    default: int,
    *,
    name: str = "max_tokens",
) -> int:
    """How many tokens the answer may have. `name` is what the client calls `wanted`.

    Raises BadRequest.
    """
    if wanted is not None and wanted <= 0:
        raise BadRequest(f"{name} must be positive, not {wanted}")
    if limit is None:
        return wanted or default
    if prompt_tokens >= limit or (wanted is not None and wanted > limit - prompt_tokens):
        raise ContextLengthExceeded(prompt_tokens, wanted, limit, name)
    return wanted if wanted is not None else min(default, limit - prompt_tokens)
