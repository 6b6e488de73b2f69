"""The conversations of which chat templates are compared, and the day on which they are rendered."""

import datetime

import jinja2
from transformers.utils import chat_template_utils
from transformers.utils.chat_template_utils import render_jinja_template


class FixedDate(datetime.datetime):
    """Today, for templates that ask: Hearth writes this date whatever the day."""

    @classmethod
    def now(cls, tz=None):
        return cls(2024, 7, 26)


chat_template_utils.datetime = FixedDate

EOS = "</s>"
SYSTEM = {"role": "system", "content": "  Answer in \"verse\", 100 % of it.\n"}
CONVERSATIONS = [
    [{"role": "user", "content": "What is the capital of France?"}],
    [SYSTEM, {"role": "user", "content": "\u00a0\u3000 Hi, 'you' \\n {there} \x1c\n\n"}],
    [{"role": "user", "content": "1 + 1?"}, {"role": "assistant", "content": " 2\n"}, {"role": "user", "content": "Why?\r\n"}],
    [SYSTEM, {"role": "user", "content": "Привет 👋"}, {"role": "assistant", "content": "\n\nЗдравствуйте\u2003"},
     {"role": "user", "content": ""}, {"role": "assistant", "content": "?"}, {"role": "user", "content": "\t"}],
]  # fmt: skip
ANSWERS_IN_A_ROW = [{"role": "user", "content": "Go"}, {"role": "assistant", "content": "One"},
                    {"role": "assistant", "content": "two "}, {"role": "user", "content": "Stop"}]  # fmt: skip
THOUGHT = [{"role": "user", "content": "Go"},
           {"role": "assistant", "content": "a <|channel>thought\nhm<channel|> b<channel|>c<|channel>open"},
           {"role": "user", "content": "On"}]  # fmt: skip
DEEP_THOUGHT = [{"role": "user", "content": "Go"}, {"role": "assistant", "content": "<think>\nhm</think>a</think>\n\nb "},
                {"role": "user", "content": "On"}]  # fmt: skip
conversations = CONVERSATIONS + [ANSWERS_IN_A_ROW, THOUGHT, DEEP_THOUGHT]


def render(template, messages, bos, eos=EOS):
    """As transformers renders it; None when the template refuses the conversation."""
    try:
        texts, _ = render_jinja_template([messages], chat_template=template, add_generation_prompt=True, bos_token=bos,
                                         eos_token=eos, date_string="26 Jul 2024")  # fmt: skip
    except jinja2.exceptions.TemplateError:
        return None
    return texts[0]
