/* Built-in chat templates. */
#include "checkpoint/chat_detection.h"

/* clang-format off */

/* What these formats have no place for. `first` is the message after the system text. */
#define BEGIN(name) \
    "{%- if tools %}{{ raise_exception('the " name " chat format has no tools; the checkpoint lacks a chat template') }}{% endif %}" \
    "{%- for m in messages %}{% if m.role not in ['system', 'user', 'assistant'] or m.tool_calls %}" \
    "{{ raise_exception('message ' ~ loop.index0 ~ ' is of a tool, and the " name " chat format has none; the checkpoint lacks a chat template') }}" \
    "{% endif %}{% endfor %}" \
    "{%- set first = 1 if messages and messages[0].role == 'system' else 0 %}"

/* Formats in which user and assistant take turns. */
#define TURNS(name) \
    "{%- if messages | length == first %}{{ raise_exception('the " name " chat format needs a user message after the system message') }}{% endif %}" \
    "{%- for m in messages[first:] %}{% set expected = 'assistant' if loop.index0 % 2 else 'user' %}{% if m.role != expected %}" \
    "{{ raise_exception('message ' ~ (loop.index0 + first) ~ ' has the role ' ~ m.role ~ ', but the " name \
    " chat format alternates user and assistant: expected ' ~ expected) }}{% endif %}{% endfor %}"

#define DEEPSEEK(name) "<\xEF\xBD\x9C" name "\xEF\xBD\x9C>"

static const ht_builtin_chat_format formats[] = {
    {"chatml", "<|im_start|>",
     BEGIN("chatml")
     "{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
     "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"},

    {"gemma", "<start_of_turn>",
     BEGIN("gemma") TURNS("gemma")
     "{{- bos_token }}"
     "{%- for m in messages[first:] %}"
     "{{- '<start_of_turn>' + ('model' if m.role == 'assistant' else 'user') + '\\n' }}"
     "{%- if first and loop.first %}{{ messages[0].content + '\\n\\n' }}{% endif %}"
     "{{- m.content | trim + '<end_of_turn>\\n' }}{% endfor %}"
     "{%- if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"},

    /* Earlier answers go without their thoughts. */
    {"gemma4", "<|turn>",
     BEGIN("gemma4")
     "{{- bos_token }}"
     "{%- for m in messages %}{{ '<|turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' }}"
     "{%- if m.role == 'assistant' %}{% set ns = namespace(text='') %}"
     "{%- for part in m.content.split('<channel|>') %}{% set ns.text = ns.text + part.split('<|channel>')[0] %}{% endfor %}"
     "{{- ns.text | trim }}{% else %}{{ m.content | trim }}{% endif %}"
     "{{- '<turn|>\\n' }}{% endfor %}"
     "{%- if add_generation_prompt %}{{ '<|turn>model\\n' }}{% endif %}"},

    {"llama3", "<|start_header_id|>",
     BEGIN("llama3")
     "{{- bos_token }}"
     "{%- for m in messages %}"
     "{{- '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content | trim + '<|eot_id|>' }}{% endfor %}"
     "{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"},

    /* The last system text stands in front. Earlier answers go without their thoughts. */
    {"deepseek", DEEPSEEK("User"),
     BEGIN("deepseek")
     "{{- bos_token }}{% set ns = namespace(system='') %}"
     "{%- for m in messages if m.role == 'system' %}{% set ns.system = m.content %}{% endfor %}{{ ns.system }}"
     "{%- for m in messages %}"
     "{%- if m.role == 'user' %}{{ '" DEEPSEEK("User") "' + m.content }}"
     "{%- elif m.role == 'assistant' %}"
     "{{- '" DEEPSEEK("Assistant") "' + m.content.split('</think>')[-1] + '" DEEPSEEK("end\xE2\x96\x81of\xE2\x96\x81sentence") "' }}"
     "{%- endif %}{% endfor %}"
     "{%- if add_generation_prompt %}{{ '" DEEPSEEK("Assistant") "' }}{% endif %}"},

    /* The system text and the first message are trimmed as one. */
    {"llama2", "<<SYS>>",
     BEGIN("llama2") TURNS("llama2")
     "{{- bos_token }}"
     "{%- for m in messages[first:] %}"
     "{%- if m.role == 'user' %}"
     "{%- set system = '<<SYS>>\\n' + messages[0].content + '\\n<</SYS>>\\n\\n' if first and loop.first else '' %}"
     "{{- '[INST] ' + (system + m.content) | trim + ' [/INST]' }}"
     "{%- else %}{{ ' ' + m.content | trim + ' ' ~ eos_token }}{% endif %}{% endfor %}"},

    {"mistral", "[INST]",
     BEGIN("mistral") TURNS("mistral")
     "{{- bos_token }}"
     "{%- for m in messages[first:] %}"
     "{%- if m.role == 'user' %}"
     "{{- '[INST]' + (messages[0].content + '\\n\\n' if first and loop.first else '') + m.content + '[/INST]' }}"
     "{%- else %}{{ m.content ~ eos_token }}{% endif %}{% endfor %}"},
};

/* clang-format on */

const ht_builtin_chat_format *ht_builtin_chat_format_at(int i) {
    return i >= 0 && (size_t)i < sizeof formats / sizeof *formats ? &formats[i] : NULL;
}
