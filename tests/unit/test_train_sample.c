/* Samples of training data: the forms of a line, what templates make of it, and which of its tokens are learned. */
#include "models/model.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/tiny_model.h"
#include "support/train_data.h"

#include <hearth/chat.h>

#include <stdio.h>
#include <string.h>

static ht_model *model;

static int open_model(void **state) {
    scratch_start(state);
    *state = model = tiny_load(&(tiny_options){0});
    return 0;
}

static const ht_sample_options answers = {.mask = HT_MASK_ANSWERS, .time = 1}, last = {.mask = HT_MASK_LAST, .time = 1},
                               none = {.mask = HT_MASK_NONE, .time = 1};

#define START "<|im_start|>"
#define END   "<|im_end|>"

static const char chatml[] = "{% for m in messages %}" START "{{ m.role }}\n{{ m.content }}" END "\n{% endfor %}"
                             "{% if add_generation_prompt %}" START "assistant\n{% endif %}";

/* Returns the sample without its arrays. */
static ht_sample expect(const char *line, const ht_sample_options *options, const char *expected) {
    ht_sample s;
    char *marked = train_marked(model, line, options, &s);
    assert_string_equal(marked, expected);
    free(marked);
    int32_t n_learned = 0;
    for (int32_t i = 0; i < s.n; i++) n_learned += s.learned[i];
    assert_int_equal(s.n_learned, n_learned);
    ht_sample copy = s;
    ht_sample_free(&s);
    assert_null(s.id);
    return copy;
}

/* ---- masks ---- */

static const char turns[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"Be brief\"},"
    "{\"role\": \"user\", \"content\": \"a?\"}, {\"role\": \"assistant\", \"content\": \"b.\"},"
    "{\"role\": \"user\", \"content\": \"c?\"}, {\"role\": \"assistant\", \"content\": \"d.\"}]}";

UNIT_TEST(several_turns) {
    train_use_template(model, chatml);
    const ht_sample s = expect(turns, &answers,
                               START "system\nBe brief" END "\n" START "user\na?" END "\n" START "assistant\n[b." END
                                     "]\n" START "user\nc?" END "\n" START "assistant\n[d." END "]\n");
    assert_int_equal(s.form, HT_SAMPLE_MESSAGES);
    assert_true(s.learns_stop && !s.prompt_differs && !s.history_differs && !s.truncated);
    expect(turns, &last,
           START "system\nBe brief" END "\n" START "user\na?" END "\n" START "assistant\nb." END "\n" START
                 "user\nc?" END "\n" START "assistant\n[d." END "]\n");
    /* What comes first follows nothing: no row predicts it. */
    expect(turns, &none,
           START "[system\nBe brief" END "\n" START "user\na?" END "\n" START "assistant\nb." END "\n" START
                 "user\nc?" END "\n" START "assistant\nd." END "\n]");
}

UNIT_TEST(messages_behind_the_last_answer) {
    train_use_template(model, chatml);
    expect("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"},"
           "{\"role\": \"user\", \"content\": \"c\"}]}",
           &last, START "user\na" END "\n" START "assistant\n[b" END "]\n" START "user\nc" END "\n");
    const ht_sample s =
        expect("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}", &answers, START "user\na" END "\n");
    assert_int_equal(s.n_learned, 0);
    assert_false(s.learns_stop);
}

/* Without a question before it, an answer is what the message says. */
UNIT_TEST(an_answer_first) {
    train_use_template(model, chatml);
    expect("{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}, {\"role\": \"user\", \"content\": \"b\"},"
           "{\"role\": \"assistant\", \"content\": \"c\"}]}",
           &answers, START "assistant\n[a" END "]\n" START "user\nb" END "\n" START "assistant\n[c" END "]\n");
}

UNIT_TEST(empty_answers_and_equal_ones) {
    train_use_template(model, chatml);
    expect("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"\"},"
           "{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": null}]}",
           &answers,
           START "user\na" END "\n" START "assistant\n[" END "]\n" START "user\na" END "\n" START "assistant\n[" END
                 "]\n");
}

UNIT_TEST(weights) {
    /* One that shows all that a message has. */
    train_use_template(model, "{% for m in messages %}{{ m | tojson }}" END "{% endfor %}");
    expect("{\"messages\": [{\"role\": \"user\", \"content\": \"a\", \"weight\": 1},"
           "{\"role\": \"assistant\", \"content\": \"b\", \"weight\": 0},"
           "{\"role\": \"assistant\", \"content\": \"c\", \"weight\": 1.0},"
           "{\"role\": \"assistant\", \"content\": \"d\", \"weight\": null}]}",
           &answers,
           "{\"role\": \"user\", \"content\": \"a\"}" END "{\"role\": \"assistant\", \"content\": \"b\"}" END
           "[{\"role\": \"assistant\", \"content\": \"c\"}" END "{\"role\": \"assistant\", \"content\": \"d\"}" END
           "]");
    train_use_template(model, chatml);
    const char last_out[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"},"
        "{\"role\": \"user\", \"content\": \"c\"}, {\"role\": \"assistant\", \"content\": \"d\", \"weight\": 0}]}";
    expect(last_out, &answers,
           START "user\na" END "\n" START "assistant\n[b" END "]\n" START "user\nc" END "\n" START "assistant\nd" END
                 "\n");
    expect(last_out, &last,
           START "user\na" END "\n" START "assistant\nb" END "\n" START "user\nc" END "\n" START "assistant\nd" END
                 "\n");
}

/* What a message spells neither ends an answer nor begins one. */
UNIT_TEST(special_tokens_that_messages_spell) {
    train_use_template(model, chatml);
    ht_sample s;
    char *marked = train_marked(model,
                                "{\"messages\": [{\"role\": \"user\", \"content\": \"" END START "assistant\\n\"},"
                                "{\"role\": \"assistant\", \"content\": \"x" END "y\"}]}",
                                &answers, &s);
    assert_string_equal(marked,
                        START "user\n" END START "assistant\n" END "\n" START "assistant\n[x" END "y" END "]\n");
    int n_ends = 0;
    for (int32_t i = 0; i < s.n; i++) n_ends += s.id[i] == TINY_IM_END;
    assert_int_equal(n_ends, 2);
    free(marked);
    ht_sample_free(&s);
}

UNIT_TEST(templates_without_an_end) {
    train_use_template(model, "{% for m in messages %}{{ m.role[0] }}: {{ m.content }}\n{% endfor %}"
                              "{% if add_generation_prompt %}a: {% endif %}");
    const ht_sample s = expect(
        "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}, {\"role\": \"assistant\", \"content\": \"y\"},"
        "{\"role\": \"user\", \"content\": \"x\"}, {\"role\": \"assistant\", \"content\": \"z\"}]}",
        &answers, "u: x\na: [y\n]u: x\na: [z\n]");
    assert_false(s.learns_stop);
}

/* ---- tools ---- */

static const char tools_line[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"Rain?\"},"
    "{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"id\": \"1\", \"type\": \"function\","
    "\"function\": {\"name\": \"rain\", \"arguments\": \"{\\\"at\\\": \\\"home\\\"}\"}}]},"
    "{\"role\": \"tool\", \"tool_call_id\": \"1\", \"content\": \"yes\"},"
    "{\"role\": \"assistant\", \"content\": \"It rains.\"}],"
    "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"rain\"}}], \"parallel_tool_calls\": false}";

UNIT_TEST(calls_of_tools) {
    train_use_template(
        model, "{% for t in tools %}{{ t.function.name }};{% endfor %}{% for m in messages %}" START "{{ m.role }}\n"
               "{{ m.content }}{% for c in m.tool_calls %}<call>{{ c.function.name }} {{ c.function.arguments.at }}{% "
               "endfor %}" END "\n{% endfor %}{% if add_generation_prompt %}" START "assistant\n{% endif %}");
    expect(tools_line, &answers,
           "rain;" START "user\nRain?" END "\n" START "assistant\n[<call>rain home" END "]\n" START "tool\nyes" END
           "\n" START "assistant\n[It rains." END "]\n");
}

/* Results of tools within the answer's turn: calls are learned as far as the model writes them. */
UNIT_TEST(results_within_a_turn) {
    train_use_template(model, "{% for m in messages %}{% if m.role == 'user' %}" START "user\n{{ m.content }}" END
                              "\n" START "model\n"
                              "{% elif m.role == 'tool' %}<result>{{ m.content }}</result>{% else %}"
                              "{% for c in m.tool_calls %}<call>{{ c.function.name }}</call>{% endfor %}{{ m.content }}"
                              "{% if not m.tool_calls or loop.last %}" END "\n{% endif %}{% endif %}{% endfor %}");
    const ht_sample s =
        expect(tools_line, &answers,
               START "user\nRain?" END "\n" START "model\n[<call>rain</call>]<result>yes</result>[It rains." END "]\n");
    assert_true(s.learns_stop && !s.history_differs);
}

/* What a tool said ends differently once an answer follows: the prompt parts from the whole there, before the answer. */
UNIT_TEST(prompts_that_part_before_the_answer) {
    train_use_template(model, "{% for m in messages %}" START "{{ m.role }}\n"
                              "{% for c in m.tool_calls %}<call>{{ c.function.name }}{% endfor %}{{ m.content }}"
                              "{% if m.role == 'tool' and not loop.last %}{{ '\n' }}{% endif %}" END "\n{% endfor %}"
                              "{% if add_generation_prompt %}" START "assistant\n{% endif %}");
    const ht_sample s = expect(tools_line, &answers,
                               START "user\nRain?" END "\n" START "assistant\n[<call>rain" END "]\n" START
                                     "tool\nyes\n" END "\n" START "assistant\n[It rains." END "]\n");
    assert_true(s.prompt_differs && !s.answer_lost);
}

UNIT_TEST(templates_without_calls) {
    ht_sample s;
    train_use_template(model, chatml);
    assert_fails(HT_ERR_UNSUPPORTED, "leaves out the `tool_calls` of message 1", ht_sample_read, model, tools_line,
                 strlen(tools_line), &none, &s);
}

/* ---- ends ---- */

/* The model ends its turn by opening the next one. */
UNIT_TEST(ends_that_open_the_next_turn) {
    train_use_template(model, "{% for m in messages %}{% if m.role == 'assistant' %}a{% else %}" END "{% endif %}"
                              "{{ m.content }}{% endfor %}{% if add_generation_prompt %}a{% endif %}");
    const ht_sample s = expect(turns, &answers, END "Be brief" END "a?a[b." END "]c?a[d.]");
    assert_true(s.learns_stop);
}

/* The last answer's channel is another one than that of an answer in a history, and nothing tells where that ends. */
UNIT_TEST(answers_that_cannot_be_found) {
    train_use_template(model, "{% for m in messages %}({{ m.role[0] }}{% if m.role == 'assistant' %}-"
                              "{% if loop.last %}end: {{ m.content }}" END "{% else %}{{ m.content }}{% endif %}"
                              "{% else %}{{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}(a"
                              "{% endif %}");
    const ht_sample s = expect(turns, &answers, "(sBe brief(ua?(a-b.(uc?(a[-end: d." END "]");
    assert_true(s.answer_lost && s.history_differs && s.learns_stop);
}

/* ---- thoughts ---- */

/* The prompt opens the thoughts, which answers in a history are written without. */
UNIT_TEST(prompts_that_no_answer_begins_with) {
    train_use_template(model,
                       "{% for m in messages %}" START "{{ m.role }}\n{{ m.content.split('</think>') | last }}" END
                       "{% endfor %}{% if add_generation_prompt %}" START "assistant\n<think>\n{% endif %}");
    const ht_sample s = expect(turns, &answers,
                               START "system\nBe brief" END START "user\na?" END START "assistant\n[b." END "]" START
                                     "user\nc?" END START "assistant\n[d." END "]");
    assert_true(s.prompt_differs && !s.history_differs && s.learns_stop);
}

/* Thoughts are written behind the last question alone, and an empty pair of marks with the answer that comes last. */
static const char thinking[] =
    "{% set ns = namespace(last=0) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}"
    "{% endif %}{% endfor %}{% for m in messages %}" START "{{ m.role }}\n"
    "{% if m.role == 'assistant' and loop.index0 > ns.last and (loop.last or m.reasoning_content) %}"
    "<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}{{ m.content }}" END "\n{% endfor %}"
    "{% if add_generation_prompt %}" START "assistant\n{% if enable_thinking is false %}<think>\n\n</think>\n\n"
    "{% endif %}{% endif %}";

UNIT_TEST(thoughts_that_a_history_leaves_out) {
    train_use_template(model, thinking);
    ht_sample s = expect(turns, &answers,
                         START "system\nBe brief" END "\n" START "user\na?" END "\n" START "assistant\n[b." END
                               "]\n" START "user\nc?" END "\n" START "assistant\n[<think>\n\n</think>\n\nd." END "]\n");
    assert_true(!s.history_differs && !s.prompt_differs); /* both answers are as they were given */
    /* Thoughts are off: the prompt has the marks. */
    char without[512];
    snprintf(without, sizeof without, "%.*s, \"chat_template_kwargs\": {\"enable_thinking\": false}}",
             (int)strlen(turns) - 1, turns);
    s = expect(without, &answers,
               START "system\nBe brief" END "\n" START "user\na?" END "\n" START "assistant\n[b." END "]\n" START
                     "user\nc?" END "\n" START "assistant\n<think>\n\n</think>\n\n[d." END "]\n");
    assert_true(!s.history_differs && !s.prompt_differs); /* both answers are as they were given */
}

/* An answer that begins as the opened thoughts do: all of it is learned. */
UNIT_TEST(answers_that_begin_as_thoughts_do) {
    train_use_template(model, "{% for m in messages %}" START "{{ m.role }}\n{{ m.content }}" END
                              "{% endfor %}{% if add_generation_prompt %}" START "assistant\n<think>\n{% endif %}");
    static const char line[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"},"
                               "{\"role\": \"assistant\", \"content\": \"<th>x\"},"
                               "{\"role\": \"user\", \"content\": \"c\"},"
                               "{\"role\": \"assistant\", \"content\": \"<th>y\"}]}";
    expect(line, &answers,
           START "user\na" END START "assistant\n[<th>x" END "]" START "user\nc" END START "assistant\n[<th>y" END "]");
}

/* The beginning of the conversation is refused, the whole is not. */
UNIT_TEST(beginnings_that_are_refused) {
    train_use_template(model, "{% if not messages | selectattr('role', 'equalto', 'user') | list %}"
                              "{{ raise_exception('no question') }}{% endif %}{% for m in messages %}" START
                              "{{ m.role }}\n{{ m.content }}" END "{% endfor %}{% if add_generation_prompt %}" START
                              "assistant\n{% endif %}");
    static const char line[] = "{\"messages\": [{\"role\": \"system\", \"content\": \"s\"},"
                               "{\"role\": \"assistant\", \"content\": \"Hello\"},"
                               "{\"role\": \"user\", \"content\": \"a\"},"
                               "{\"role\": \"assistant\", \"content\": \"b\"}]}";
    const ht_sample s = expect(line, &answers,
                               START "system\ns" END START "assistant\n[Hello" END "]" START "user\na" END START
                                     "assistant\n[b" END "]");
    assert_true(!s.prompt_differs && !s.history_differs && !s.answer_lost);
}

/* Thoughts of the last answer, or what is said beside a call: told of. */
UNIT_TEST(parts_that_are_left_out) {
    train_use_template(model, "{% for m in messages %}" START "{{ m.role }}\n{% if m.tool_calls %}<call>"
                              "{{ m.tool_calls[0].function.name }}{% else %}{{ m.content }}{% endif %}" END
                              "{% endfor %}{% if add_generation_prompt %}" START "assistant\n{% endif %}");
    static const char thoughts[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"},"
                                   "{\"role\": \"assistant\", \"content\": \"b\", \"reasoning_content\": \"so\"}]}";
    static const char beside[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"},{\"role\": \"assistant\", \"content\": \"Let me "
        "look\","
        "\"tool_calls\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": {}}}]}]}";
    static const char second[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"},{\"role\": \"assistant\", \"content\": \"\","
        "\"tool_calls\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": {}}},"
        "{\"type\": \"function\", \"function\": {\"name\": \"g\", \"arguments\": {}}}]}]}";
    ht_sample s = expect(thoughts, &answers, START "user\na" END START "assistant\n[b" END "]");
    assert_true(s.history_differs && !s.answer_lost);
    /* Of an answer that is not learned, nothing is told. */
    static const char before[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"},"
                                 "{\"role\": \"assistant\", \"content\": \"b\", \"reasoning_content\": \"so\"},"
                                 "{\"role\": \"user\", \"content\": \"c\"},"
                                 "{\"role\": \"assistant\", \"content\": \"d\"}]}";
    s = expect(before, &last,
               START "user\na" END START "assistant\nb" END START "user\nc" END START "assistant\n[d" END "]");
    assert_true(!s.history_differs);
    s = expect(before, &answers,
               START "user\na" END START "assistant\n[b" END "]" START "user\nc" END START "assistant\n[d" END "]");
    assert_true(s.history_differs);
    s = expect(beside, &answers, START "user\na" END START "assistant\n[<call>f" END "]");
    assert_true(s.history_differs && !s.answer_lost);
    assert_fails(HT_ERR_UNSUPPORTED, "leaves out the `tool_calls` of message 1 but for the first", ht_sample_read,
                 model, second, strlen(second), &none, &s);
}

/* Behind a later question, the prompts of all steps before it are written differently from their beginnings on. */
UNIT_TEST(thoughts_of_several_steps) {
    train_use_template(model, thinking);
    static const char line[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"a?\"},"
                               "{\"role\": \"assistant\", \"content\": \"call\", \"reasoning_content\": \"hm\"%s},"
                               "{\"role\": \"tool\", \"content\": \"result\"},"
                               "{\"role\": \"assistant\", \"content\": \"answer\", \"reasoning_content\": \"oh\"},"
                               "{\"role\": \"user\", \"content\": \"b?\"},"
                               "{\"role\": \"assistant\", \"content\": \"end\", \"reasoning_content\": \"so\"}]}";
    char text[1024];
    snprintf(text, sizeof text, line, "");
    const ht_sample s = expect(text, &answers,
                               START "user\na?" END "\n" START "assistant\n[call" END "]\n" START "tool\nresult" END
                                     "\n" START "assistant\n[answer" END "]\n" START "user\nb?" END "\n" START
                                     "assistant\n[<think>\nso\n</think>\n\nend" END "]\n");
    assert_true(s.history_differs);
    snprintf(text, sizeof text, line, ", \"weight\": 0");
    expect(text, &answers,
           START "user\na?" END "\n" START "assistant\ncall" END "\n" START "tool\nresult" END "\n" START
                 "assistant\n[answer" END "]\n" START "user\nb?" END "\n" START
                 "assistant\n[<think>\nso\n</think>\n\nend" END "]\n");
}

/* ---- the ids are those of generation ---- */

UNIT_TEST(prompts_are_those_of_generation) {
    train_use_template(model, chatml);
    ht_sample s;
    free(train_marked(model, turns, &last, &s));
    ht_chat *chat;
    int32_t *ids = NULL;
    size_t n = 0;
    char question[512];
    snprintf(question, sizeof question, "%.*s]}",
             (int)(strstr(turns, ", {\"role\": \"assistant\", \"content\": \"d.") - turns), turns);
    ht_error err = {0};
    if (ht_chat_from_json(question, strlen(question), &chat, &err) || ht_chat_encode(model, chat, 0, &ids, &n, &err))
        fail_msg("%s", err.message);
    assert_memory_equal(ids, s.id, n * sizeof *ids);
    assert_true(s.learned[n] && !s.learned[n - 1]);
    assert_int_equal(s.n_learned, 3); /* d, a full stop, and the end */
    ht_ids_free(ids);
    ht_chat_free(chat);
    ht_sample_free(&s);
}

/* ---- other forms ---- */

UNIT_TEST(prompt_and_completion) {
    train_use_template(model, chatml);
    static const char line[] = "{\"prompt\": \"a?\", \"completion\": \"b.\", \"source\": 7}";
    ht_sample s = expect(line, &answers, START "user\na?" END "\n" START "assistant\n[b." END "]\n");
    assert_int_equal(s.form, HT_SAMPLE_COMPLETION);
    train_use_template(model, NULL);
    s = expect(line, &last, "a?[b.<|endoftext|>]");
    assert_true(s.learns_stop);
    expect(line, &none, "a[?b.<|endoftext|>]");
    /* The prompt's last token is another one with the completion behind it: learned is what is not common. */
    expect("{\"prompt\": \"xt\", \"completion\": \"he\"}", &answers, "x[the<|endoftext|>]");
    expect("{\"prompt\": \"a\", \"completion\": \"b" END "\"}", &answers, "a[b" END "]");
}

UNIT_TEST(texts) {
    ht_sample s = expect("{\"text\": \"the end\"}", &answers, "the[ end<|endoftext|>]");
    assert_int_equal(s.form, HT_SAMPLE_TEXT);
    assert_true(s.learns_stop);
    expect("{\"text\": \"ab<|endoftext|>\"}", &last, "a[b<|endoftext|>]");
    s = expect("{\"text\": \"\"}", &answers, "<|endoftext|>");
    assert_int_equal(s.n_learned, 0);
}

UNIT_TEST(ids_and_labels) {
    /* Of the alphabet, 0 is "!". */
    ht_sample s =
        expect("{\"input_ids\": [0, 1, 2, 271], \"labels\": [-100, -100, 2, 271]}", &answers, "!\"[#" END "]");
    assert_int_equal(s.form, HT_SAMPLE_IDS);
    assert_true(s.learns_stop);
    s = expect("{\"input_ids\": [0, 1, 2], \"labels\": null, \"attention_mask\": [1, 1, 1]}", &answers, "![\"#]");
    assert_false(s.learns_stop);
    expect("{\"input_ids\": [0, 1], \"labels\": [-100, -100]}", &none, "![\"]");
    s = expect("{\"input_ids\": []}", &answers, "");
    assert_int_equal(s.n, 0);
    /* A character that is learned in part is shown with its end. */
    char line[128];
    int32_t *e;
    size_t n;
    assert_works(ht_tokenizer_encode, model->tokenizer, "\xC3\xA9", 2, 0, &e, &n);
    assert_int_equal(n, 2);
    snprintf(line, sizeof line, "{\"input_ids\": [0, %d, %d], \"labels\": [-100, -100, %d]}", e[0], e[1], e[1]);
    expect(line, &answers, "![\xC3\xA9]");
    ht_ids_free(e);
}

/* ---- what is no sample ---- */

UNIT_TEST(bad_lines) {
    train_use_template(model, chatml);
    static const struct {
        const char *line;
        ht_status status;
        const char *says;
    } cases[] = {
        {"{\"text\": ", HT_ERR_FORMAT, "line 1, column 10: expected a value"},
        {"{\"text\": \"a\"} {\"text\": \"b\"}", HT_ERR_FORMAT, "line 1, column 15: "},
        {"{\"text\": \"\xFF\"}", HT_ERR_FORMAT, "line 1, column "},
        {"[1]", HT_ERR_FORMAT, "expected an object"},
        {"null", HT_ERR_FORMAT, "expected an object"},
        {"{}", HT_ERR_FORMAT, "it has no field of a sample"},
        {"{\"prompt\": \"a\"}", HT_ERR_FORMAT, "it has no field of a sample"},
        {"{\"text\": null}", HT_ERR_FORMAT, "it has no field of a sample"},
        {"{\"text\": \"a\", \"messages\": []}", HT_ERR_FORMAT, "both messages and text"},
        {"{\"text\": 7}", HT_ERR_FORMAT, "`text` is 7, expected a string"},
        {"{\"prompt\": [], \"completion\": \"a\"}", HT_ERR_FORMAT, "a conversation is given as `messages`"},
        {"{\"prompt\": \"a\", \"completion\": 1}", HT_ERR_FORMAT, "`completion` is 1"},
        {"{\"messages\": {}}", HT_ERR_FORMAT, "`messages` is an object, expected a list"},
        {"{\"messages\": []}", HT_ERR_ARGUMENT, "no messages"},
        {"{\"messages\": [7]}", HT_ERR_FORMAT, "message 0 is a number"},
        {"{\"messages\": [{\"role\": \"human\", \"content\": \"a\"}]}", HT_ERR_ARGUMENT, "the role \"human\""},
        {"{\"messages\": [{\"role\": \"user\"}]}", HT_ERR_FORMAT, "the content of message 0 is missing"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}]}", HT_ERR_UNSUPPORTED,
         "of the type \"image_url\""},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": 7}", HT_ERR_FORMAT,
         "`tools` is a number"},
        {"{\"messages\": [{\"role\": \"user\", \"role\": \"user\", \"content\": \"a\"}]}", HT_ERR_FORMAT,
         "line 1, column 32: "},
        {"{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\", \"weight\": 0.5}]}", HT_ERR_FORMAT,
         "the weight of message 0 must be 0 or 1"},
        {"{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\", \"weight\": \"1\"}]}", HT_ERR_FORMAT,
         "the weight of message 0 must be 0 or 1"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"functions\": []}", HT_ERR_UNSUPPORTED,
         "expected `tools`"},
        {"{\"messages\": [{\"role\": \"assistant\", \"content\": null, \"function_call\": {\"name\": \"f\"}}]}",
         HT_ERR_UNSUPPORTED, "expected `tool_calls`"},
        {"{\"input_ids\": 7}", HT_ERR_FORMAT, "`input_ids` is 7, expected a list"},
        {"{\"input_ids\": [0, 288]}", HT_ERR_FORMAT, "id 1 is 288, expected 0 to 287"},
        {"{\"input_ids\": [-1]}", HT_ERR_FORMAT, "id 0 is -1"},
        {"{\"input_ids\": [1.5]}", HT_ERR_FORMAT, "entry 0 of `input_ids` is 1.5, expected an integer"},
        {"{\"input_ids\": [1, 99999999999999999999]}", HT_ERR_FORMAT, "entry 1 of `input_ids`"},
        {"{\"input_ids\": [1, 2], \"labels\": [-100]}", HT_ERR_FORMAT, "`labels` has 1 entries for 2 ids"},
        {"{\"input_ids\": [1, 2, 3], \"labels\": [2, 3, -100]}", HT_ERR_FORMAT, "labels are not shifted"},
        {"{\"input_ids\": [1, 2], \"attention_mask\": [1, 0]}", HT_ERR_UNSUPPORTED, "without padding"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ht_sample s;
        ht_error err = {0};
        ht_status status = ht_sample_read(model, cases[i].line, strlen(cases[i].line), &answers, &s, &err);
        if (status != cases[i].status || err.status != status || !strstr(err.message, cases[i].says))
            fail_msg("%s: status %d, \"%s\"", cases[i].line, status, err.message);
        assert_null(s.id);
        assert_null(s.learned);
    }
}

UNIT_TEST(what_a_model_lacks) {
    ht_sample s;
    train_use_template(model, NULL);
    assert_fails(HT_ERR_UNSUPPORTED, "no chat template", ht_sample_read, model, turns, strlen(turns), &answers, &s);
    train_use_template(model, "{{ raise_exception('Roles must alternate') }}");
    assert_fails(HT_ERR_ARGUMENT, "Roles must alternate", ht_sample_read, model, turns, strlen(turns), &answers, &s);
    train_use_template(model, chatml);
    ht_tokenizer *const t = model->tokenizer;
    model->tokenizer = NULL;
    model->no_tokenizer = "has no tokenizer";
    static const char *const lines[] = {turns, "{\"text\": \"a\"}", "{\"prompt\": \"a\", \"completion\": \"b\"}"};
    for (int i = 0; i < 3; i++)
        assert_fails(HT_ERR_UNSUPPORTED, "", ht_sample_read, model, lines[i], strlen(lines[i]), &answers, &s);
    static const char ids[] = "{\"input_ids\": [1, 2]}";
    assert_works(ht_sample_read, model, ids, strlen(ids), &answers, &s);
    assert_int_equal(s.n_learned, 1);
    ht_sample_free(&s);
    model->tokenizer = t;
}

/* A vocabulary larger than the model. */
UNIT_TEST(tokens_that_the_model_lacks) {
    ht_sample s;
    ht_error err = {0};
    static const char line[] = "{\"text\": \"a\"}";
    model->vocab = TINY_EOS;
    assert_int_equal(ht_sample_read(model, line, strlen(line), &answers, &s, &err), HT_ERR_FORMAT);
    model->vocab = TINY_VOCAB;
    assert_non_null(strstr(err.message, "token 1 is the tokenizer's 272; the model has 272 tokens"));
}

static bool refuse(const char *text, size_t n, bool learned, void *user) {
    (void)text, (void)n, (void)learned;
    return ++*(int *)user < 2;
}

UNIT_TEST(pieces_may_be_refused) {
    train_use_template(model, chatml);
    ht_sample s;
    int calls = 0;
    free(train_marked(model, turns, &answers, &s));
    assert_fails(HT_ERR_CANCELLED, "", ht_sample_pieces, model, &s, refuse, &calls);
    assert_int_equal(calls, 2);
    ht_sample_free(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_turns),
        cmocka_unit_test(messages_behind_the_last_answer),
        cmocka_unit_test(an_answer_first),
        cmocka_unit_test(empty_answers_and_equal_ones),
        cmocka_unit_test(weights),
        cmocka_unit_test(special_tokens_that_messages_spell),
        cmocka_unit_test(templates_without_an_end),
        cmocka_unit_test(calls_of_tools),
        cmocka_unit_test(results_within_a_turn),
        cmocka_unit_test(prompts_that_part_before_the_answer),
        cmocka_unit_test(templates_without_calls),
        cmocka_unit_test(ends_that_open_the_next_turn),
        cmocka_unit_test(answers_that_cannot_be_found),
        cmocka_unit_test(prompts_that_no_answer_begins_with),
        cmocka_unit_test(thoughts_that_a_history_leaves_out),
        cmocka_unit_test(answers_that_begin_as_thoughts_do),
        cmocka_unit_test(beginnings_that_are_refused),
        cmocka_unit_test(parts_that_are_left_out),
        cmocka_unit_test(thoughts_of_several_steps),
        cmocka_unit_test(prompts_are_those_of_generation),
        cmocka_unit_test(prompt_and_completion),
        cmocka_unit_test(texts),
        cmocka_unit_test(ids_and_labels),
        cmocka_unit_test(bad_lines),
        cmocka_unit_test(what_a_model_lacks),
        cmocka_unit_test(tokens_that_the_model_lacks),
        cmocka_unit_test(pieces_may_be_refused),
    };
    return cmocka_run_group_tests(tests, open_model, tiny_teardown);
}
