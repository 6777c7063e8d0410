"""`<tool_call>{"name": …, "arguments": {…}}</tool_call>`: Qwen, Hermes, SmolLM and many more."""

from skulkd.runner.tools.calls import ToolFormat, calls_from_json

HERMES = ToolFormat(name="hermes", begin="<tool_call>", end="</tool_call>", parse=calls_from_json)
