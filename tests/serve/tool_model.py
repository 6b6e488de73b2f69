"""A tiny model whose chat template knows tools and thoughts, and what a test holds its answers to: random weights call no tool by themselves."""

import json
import re

from support import SCRATCH, tiny_model

TEMPLATE = r"""{%- if tools %}<|im_start|>system
{{ tools | tojson }} Calls: <tool_call>{"name": "a", "arguments": {}}</tool_call><|im_end|>
{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}{{ ' ' + m.name if m.name }}
{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>
{% endif %}{{ m.content }}{% for c in m.tool_calls %}<tool_call>{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{{ '[' + reasoning_effort + ']' if reasoning_effort }}{% if enable_thinking is defined and not enable_thinking %}<think>

</think>

{% endif %}{% endif %}"""

# As gpt-oss: an answer is several messages.
MESSAGES_TEMPLATE = r"""<|start|>system<|message|>{{ reasoning_effort }}{{ tools | tojson if tools }}<|end|>
{%- for m in messages %}
    {%- if m.tool_calls %}
        {%- set call = m.tool_calls[0].function %}
        {%- set answered = messages[loop.index:] | selectattr('role', 'equalto', 'assistant') | rejectattr('tool_calls') | list %}
        {{- '<|start|>assistant<|channel|>analysis<|message|>' + m.thinking + '<|end|>' if m.thinking and not answered }}
        {{- '<|start|>assistant to=functions.' + call.name + '<|channel|>commentary json<|message|>' }}
        {{- call.arguments | tojson + '<|call|>' }}
    {%- else %}
        {{- '<|start|>' + m.role + '<|channel|>final<|message|>' + m.content + '<|end|>' }}
    {%- endif %}
{%- endfor %}
{{- '<|start|>assistant' if add_generation_prompt }}"""

CONTEXT = 4096
MODEL = SCRATCH / "tools.gguf"
tiny_model.write(MODEL, context=CONTEXT, template=TEMPLATE)
MESSAGES_MODEL = SCRATCH / "messages.gguf"
tiny_model.write(MESSAGES_MODEL, context=CONTEXT, template=MESSAGES_TEMPLATE)


def call(name, arguments):
    """A call as the model writes it."""
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def exactly(text):
    """The expression of that text alone."""
    return re.sub(r"[\\^$.*+?()\[\]{}|/]", r"\\\g<0>", text)
