/* Answers taken apart, in every format: whole, character by character, in random pieces, and with their marks as special
 * tokens. */
#include "base/text.h"
#include "chat/response.h"
#include "support/json_file.h"
#include "support/test.h"
#include "template/eval.h"
#include "template/template.h"

#include <hearth/hearth.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char tools_json[] =
    "[{'type': 'function', 'function': {'name': 'weather', 'parameters': {'type': 'object', 'properties': {'city': "
    "{'type': 'string'}, 'days': {'type': 'integer'}, 'warm': {'type': 'boolean'}, 'at': {'type': 'array'}}}}}, "
    "{'name': 'stop', 'parameters': {}}, {'name': 'text', 'parameters': {'$defs': {'a/b': {'type': 'string'}, 'loop': "
    "{'anyOf': [{'$ref': '#/$defs/loop'}, {'$ref': '#/$defs/loop'}]}}, 'properties': {'any': {'anyOf': [{'type': "
    "'string'}, {'type': 'null'}]}, 'types': {'type': ['string', 'null']}, 'ref': {'$ref': '#/$defs/a~1b'}, 'all': "
    "{'allOf': [{'$ref': '#/$defs/a~1b'}, {'maxLength': 9}]}, 'enum': {'enum': ['1', 'true']}, 'const': {'const': "
    "'1'}, 'mixed': {'enum': [1, '2']}, 'number': {'oneOf': [{'type': 'integer'}, {'type': 'null'}]}, 'loop': {'$ref': "
    "'#/$defs/loop'}, 'free': {}}}}]";

/* What came, as one text: T(text), H(thoughts), C(name arguments id). Pieces of one part are joined. */
typedef struct transcript {
    ht_text text, id;
    ht_answer_part last;
    bool in_pieces; /* calls come in pieces, which are joined; one that is cut ends with ! */
    int left;       /* pieces until it refuses; negative: never */
} transcript;

static bool note(const ht_answer_piece *piece, void *user) {
    transcript *t = user;
    if (t->left >= 0 && t->left-- == 0) return false;
    assert_true(t->in_pieces ? piece->part != HT_ANSWER_CALL : piece->part <= HT_ANSWER_CALL);
    switch (piece->part) {
    case HT_ANSWER_CALL_BEGIN:
        assert_null(piece->call->arguments);
        ht_text_printf(&t->text, "%sC(%s ", t->last ? ")" : "", piece->call->name);
        ht_text_clear(&t->id);
        ht_text_append_str(&t->id, piece->call->id ? piece->call->id : "");
        t->last = piece->part;
        return true;
    case HT_ANSWER_CALL_ARGUMENTS:
        assert_true(t->last == HT_ANSWER_CALL_BEGIN || t->last == HT_ANSWER_CALL_ARGUMENTS);
        assert_true(piece->n > 0 && piece->text[piece->n] == '\0' && ht_utf8_valid(piece->text, piece->n));
        ht_text_append(&t->text, piece->text, piece->n);
        t->last = piece->part;
        return true;
    case HT_ANSWER_CALL_END:
        assert_true(t->last == HT_ANSWER_CALL_BEGIN || t->last == HT_ANSWER_CALL_ARGUMENTS);
        if (t->id.len) ht_text_printf(&t->text, " %s", t->id.data);
        if (piece->cut) ht_text_append_str(&t->text, "!");
        t->last = piece->part;
        return true;
    default: break;
    }
    if (piece->part == HT_ANSWER_CALL) {
        assert_null(piece->text);
        ht_text_printf(&t->text, "%sC(%s %s", t->last ? ")" : "", piece->call->name, piece->call->arguments);
        if (piece->call->id) ht_text_printf(&t->text, " %s", piece->call->id);
    } else {
        assert_true(piece->n > 0 && piece->text[piece->n] == '\0' && ht_utf8_valid(piece->text, piece->n));
        if (piece->part != t->last)
            ht_text_printf(&t->text, "%s%c(", t->last ? ")" : "", piece->part == HT_ANSWER_TEXT ? 'T' : 'H');
        ht_text_append(&t->text, piece->text, piece->n);
    }
    t->last = piece->part;
    return true;
}

static const char *finish(transcript *t) {
    ht_text_append_str(&t->text, t->last ? ")" : "");
    assert_false(t->text.failed);
    return t->text.data;
}

static ht_response_reader *new_reader(const ht_chat_template *t, ht_jinja_value tools, const char *prompt,
                                      transcript *to) {
    ht_response_reader *r;
    *to = (transcript){.left = -1};
    assert_works(ht_response_reader_new, t, tools, prompt, strlen(prompt), note, to, &r);
    return r;
}

static void drop(ht_response_reader *r, transcript *found) {
    ht_response_reader_free(r);
    ht_text_discard(&found->text);
    ht_text_discard(&found->id);
}

static ht_chat_template *template_of(const char *source) {
    ht_chat_template *t;
    assert_works(ht_chat_template_parse, source, strlen(source), "t", &t);
    return t;
}

static uint64_t random_bits(uint64_t *seed) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

static size_t character(const char *p) {
    size_t n = 1;
    while (((unsigned char)p[n] & 0xC0) == 0x80) n++;
    return n;
}

/* Checks an answer that comes in pieces of so many characters, or 0: of random ones. With `calls` calls come in pieces, too. */
static void expect_in_pieces(const ht_chat_template *t, ht_jinja_value tools, const char *prompt, const char *answer,
                             const char *expected, size_t characters, uint64_t seed, bool calls) {
    transcript found;
    ht_response_reader *r = new_reader(t, tools, prompt, &found);
    found.in_pieces = calls;
    ht_response_reader_set_call_pieces(r, calls);
    for (const char *p = answer; *p;) {
        size_t n = 0;
        for (size_t c = characters ? characters : 1 + random_bits(&seed) % 9; c && p[n]; c--) n += character(p + n);
        assert_int_equal(ht_response_put(r, p, n), HT_RESPONSE_OPEN);
        p += n;
    }
    assert_int_equal(ht_response_end(r), HT_RESPONSE_OPEN);
    if (strcmp(finish(&found), expected) != 0)
        fail_msg("%s\n  in pieces of %zu: expected\n%s\n  found\n%s", answer, characters, expected, found.text.data);
    assert_true(found.last != HT_ANSWER_CALL_BEGIN && found.last != HT_ANSWER_CALL_ARGUMENTS); /* all have ended */
    drop(r, &found);
}

static void expect_answer(const char *source, bool with_tools, const char *prompt, const char *answer,
                          const char *expected, bool calls) {
    ht_chat_template *t = template_of(source);
    ht_jinja_arena a = {.limit = 1 << 20, .name = "tools"};
    const ht_jinja_value tools =
        with_tools ? ht_jinja_json_value(&a, json_quoted(tools_json), sizeof tools_json - 1, "tools") : ht_jinja_none();
    assert_int_equal(a.status, HT_OK);
    expect_in_pieces(t, tools, prompt, answer, expected, SIZE_MAX / 2, 0, calls);
    expect_in_pieces(t, tools, prompt, answer, expected, 1, 0, calls);
    for (uint64_t seed = 1; seed <= 20; seed++) expect_in_pieces(t, tools, prompt, answer, expected, 0, seed, calls);
    ht_jinja_arena_free(&a);
    ht_chat_template_free(t);
}

static void expect_parts(const char *source, bool with_tools, const char *prompt, const char *answer,
                         const char *expected) {
    expect_answer(source, with_tools, prompt, answer, expected, false);
}

static void expect_call_pieces(const char *source, const char *answer, const char *expected) {
    expect_answer(source, true, "", answer, expected, true);
}

#define PARIS    "{\"city\": \"Paris\", \"days\": 3}"
#define ROME     "{\"city\": \"Rome\", \"days\": 1}"
#define BOTH     ")C(weather " PARIS ")C(weather " ROME ")"
#define BAR      "\xEF\xBD\x9C"
#define LOW      "\xE2\x96\x81"
#define DS(a, b) "<" BAR "tool" LOW a LOW b BAR ">"
#define DSEP     "<" BAR "tool" LOW "sep" BAR ">"
#define DSML     BAR "DSML" BAR
#define HARMONY  "<|channel|>analysis"
#define START    "<|start|>assistant"
#define ANALYSIS "<|channel|>analysis<|message|>"
#define FINAL    "<|channel|>final<|message|>"

static const struct {
    const char *source, *answer, *expected;
} formats[] = {
    /* Qwen, Hermes, Granite 4, SmolLM3 and others */
    {"<tool_call>",
     "Let me see.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": " PARIS "}\n</tool_call>\n<tool_call>\n"
     "{\"name\": \"weather\", \"arguments\": " ROME "}\n</tool_call>",
     "T(Let me see." BOTH},
    {"<tool_call>", "<think>\nWhat?\n\nHm.\n</think>\n\nSure.\n\n<tool_call>{\"name\": \"stop\"}</tool_call>\n bye ",
     "H(What?\n\nHm.)T(Sure.)C(stop {})T(bye )"},
    {"<tool_call>", "<tool_call>{\"name\": \"stop\", \"arguments\": {\"a\": \"</tool_call> é\"}}</tool_call>",
     "C(stop {\"a\": \"</tool_call> é\"})"},
    {"<tool_call>", "<tool_call>[{\"name\": \"stop\", \"parameters\": \"{\\\"a\\\": 1}\", \"id\": \"x\"}]</tool_call>",
     "C(stop {\"a\": 1} x)"},
    /* Qwen 3 Coder, Nemotron 3 */
    {"<tool_call>",
     "A:\n<tool_call>\n<function=weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n3\n</parameter>\n"
     "</function>\n</tool_call>\n<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</"
     "parameter>\n<parameter=days>\n"
     "1\n</parameter>\n</function>\n</tool_call>",
     "T(A:" BOTH},
    {"<tool_call>",
     "<tool_call><function=weather><parameter=city>12</parameter><parameter=warm>True</parameter><parameter=at>\n[1, "
     "\"b\"]\n</parameter><parameter=more>\ntwo\nlines\n\n</parameter><parameter=none>null</parameter></function></"
     "tool_call>",
     "C(weather {\"city\": \"12\", \"warm\": true, \"at\": [1, \"b\"], \"more\": \"two\\nlines\\n\", \"none\": null})"},
    {"<tool_call>", "<tool_call><function=weather><parameter=at>['it', {'a': None}]</parameter></function></tool_call>",
     "C(weather {\"at\": [\"it\", {\"a\": null}]})"},
    /* without the opening mark; only for known tools */
    {"<tool_call><parameter=", "<function=weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>\n",
     "C(weather {\"city\": \"Paris\"})"},
    {"<tool_call><parameter=",
     "<think>a</think>\n\nSo:\n\n<function=stop>\n</function>\n</tool_call>\n<tool_call>\n<function=stop>\n</"
     "function>\n"
     "</tool_call>\n<function=stop></function>b</tool_call>",
     "H(a)T(So:)C(stop {})C(stop {})C(stop {})T(b</tool_call>)"},
    {"<tool_call><parameter=", "Use <function=name> or\n<function=other></function> so <function=",
     "T(Use <function=name> or\n<function=other></function> so <function=)"},
    {"<tool_call><parameter=", "<function=stop></function>\n</tool", "C(stop {})"},
    /* bare values by their schemas */
    {"<tool_call><parameter=",
     "<tool_call><function=text><parameter=any>12</parameter><parameter=types>true</parameter><parameter=ref>{\"a\": "
     "1}</parameter><parameter=all>[1]</parameter><parameter=enum>true</parameter><parameter=const>1</parameter>"
     "<parameter=mixed>1</parameter><parameter=number>2</parameter><parameter=loop>3</parameter><parameter=free>4"
     "</parameter></function></tool_call>",
     "C(text {\"any\": \"12\", \"types\": \"true\", \"ref\": \"{\\\"a\\\": 1}\", \"all\": \"[1]\", \"enum\": \"true\", "
     "\"const\": \"1\", \"mixed\": 1, \"number\": 2, \"loop\": 3, \"free\": 4})"},
    {"<tool_call><arg_key>",
     "<tool_call>text<arg_key>any</arg_key><arg_value>null</arg_value><arg_key>mixed</arg_key><arg_value>2</arg_value>"
     "<arg_key>types</arg_key><arg_value>1.0</arg_value></tool_call>",
     "C(text {\"any\": null, \"mixed\": \"2\", \"types\": \"1.0\"})"},
    {"minimax:tool_call",
     "<minimax:tool_call><invoke name=\"text\"><parameter name=\"any\">12</parameter></invoke></minimax:tool_call>",
     "C(text {\"any\": \"12\"})"},
    /* GLM 4 */
    {"<tool_call>",
     "<think></think>So:<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n<arg_key>days</"
     "arg_key>\n"
     "<arg_value>3</arg_value>\n</tool_call><tool_call>weather<arg_key>city</arg_key><arg_value>Rome</arg_value>"
     "<arg_key>days</arg_key><arg_value>1</arg_value></tool_call>",
     "T(So:" BOTH},
    {"<tool_call>", "<tool_call>stop</tool_call>", "C(stop {})"},
    /* Llama 3 */
    {"<|python_tag|>",
     "{\"name\": \"weather\", \"parameters\": " PARIS "}; {\"name\": \"weather\", \"parameters\": " ROME "}",
     "C(weather " PARIS ")C(weather " ROME ")"},
    {"<|python_tag|>", "Look:<|python_tag|>{\"name\": \"stop\", \"parameters\": {}}", "T(Look:)C(stop {})"},
    {"<|python_tag|>", "<|python_tag|>weather.call(city=\"Paris\")", "T(<|python_tag|>weather.call(city=\"Paris\"))"},
    {"<|python_tag|>", "{\"name\": \"other\", \"parameters\": {}}", "T({\"name\": \"other\", \"parameters\": {}})"},
    {"<|python_tag|>", "{a set}", "T({a set})"},
    {"<|python_tag|>", "<think>a</think>\n{\"name\": \"stop\", \"parameters\": {}}", "H(a)C(stop {})"},
    {"<|python_tag|>", "<think>a</think>\n{a set} ", "H(a)T({a set} )"},
    {"<|python_tag|>", "<think>a</think>b {\"name\": \"stop\"}", "H(a)T(b {\"name\": \"stop\"})"},
    /* GLM 4 of April 2025: a tool's name and an object begin the answer */
    {"<|observation|>metadata", "weather\n" PARIS, "C(weather " PARIS ")"},
    {"<|observation|>metadata", "weather\n" PARIS "<|assistant|><|assistant|>weather\n" ROME,
     "C(weather " PARIS ")C(weather " ROME ")"},
    {"<|observation|>metadata", "\nSo:<|assistant|>weather\n" PARIS "<|assistant|>weather\n" ROME, "T(\nSo:" BOTH},
    {"<|observation|>metadata", "\n<think>a</think>\nstop \n{}", "H(a)C(stop {})"},
    {"<|observation|>metadata", "\nstop", "T(\nstop)"},
    {"<|observation|>metadata", "stop\n", "T(stop\n)"},
    {"<|observation|>metadata", "stop\nit {", "T(stop\nit {)"},
    {"<|observation|>metadata", "stopped\n{}", "T(stopped\n{})"},
    {"<|observation|>metadata", "\nI stop\n{}", "T(\nI stop\n{})"},
    /* Mistral */
    {"[TOOL_CALLS]",
     "[TOOL_CALLS] [{\"name\": \"weather\", \"arguments\": " PARIS
     ", \"id\": \"abc\"}, {\"name\": \"weather\", \"arguments\": " ROME "}]",
     "C(weather " PARIS " abc)C(weather " ROME ")"},
    {"[THINK][TOOL_CALLS]",
     "Oh[THINK]hm [[/THINK] so\n[TOOL_CALLS]weather[CALL_ID]a1[ARGS]" PARIS "[TOOL_CALLS]weather[ARGS]" ROME,
     "T(Oh)H(hm [)T(so)C(weather " PARIS " a1)C(weather " ROME ")"},
    {"[TOOL_CALLS]", "weather[ARGS]", "T(weather[ARGS])"},
    /* DeepSeek R1, V3, V3.1, V3.2, V4 */
    {DS("calls", "begin"),
     "<think>\nhm</think>\n\nOK" DS("calls", "begin")
         DS("call", "begin") "function" DSEP "weather\n```json\n" PARIS "\n```" DS("call", "end") "\n" DS(
             "call", "begin") "weather" DSEP ROME DS("call", "end") DS("calls", "end"),
     "H(hm)T(OK" BOTH},
    {"dsml_token + 'function_calls",
     "a\n\n<" DSML "function_calls>\n<" DSML "invoke name=\"weather\">\n<" DSML
     "parameter name=\"city\" string=\"true\">Paris</" DSML "parameter>\n<" DSML
     "parameter name=\"days\" string=\"false\">3</" DSML "parameter>\n</" DSML "invoke>\n<" DSML
     "invoke name=\"weather\">\n<" DSML "parameter name=\"city\" string=\"true\">Rome</" DSML "parameter>\n<" DSML
     "parameter name=\"days\" string=\"false\">1</" DSML "parameter>\n</" DSML "invoke>\n</" DSML "function_calls>",
     "T(a" BOTH},
    {"dsml_token + 'tool_calls",
     "<" DSML "tool_calls><" DSML "invoke name=\"text\"><" DSML "parameter name=\"any\" string=\"true\">null</" DSML
     "parameter><" DSML "parameter name=\"types\" string=\"false\">\"1\"</" DSML "parameter></" DSML "invoke></" DSML
     "tool_calls>",
     "C(text {\"any\": \"null\", \"types\": \"1\"})"},
    {"dsml_token + 'tool_calls",
     "<" DSML "tool_calls><" DSML "invoke name=\"stop\"></" DSML "invoke></" DSML "tool_calls>", "C(stop {})"},
    /* Gemma 4, FunctionGemma */
    {"<|channel><tool_call|>",
     "<|channel>thought\nOh "
     "<|\n<channel|>See.<|tool_call>call:weather{city:<|\"|>Paris<|\"|>,days:3}<tool_call|><|tool_call>"
     "call:weather{city:<|\"|>Rome<|\"|>,days:1}<tool_call|>",
     "H(Oh <|)T(See." BOTH},
    {"<tool_call|>", "<|tool_call>call:stop{a:{b:[1,<|\"|>}<|\"|>,true],c:null},<|\"|>d e<|\"|>:-1.5,f:[]}<tool_call|>",
     "C(stop {\"a\": {\"b\": [1, \"}\", true], \"c\": null}, \"d e\": -1.5, \"f\": []})"},
    {"<start_function_call>",
     "a<start_function_call>call:weather{city:<escape>Paris<escape>,days:3}<end_function_call><start_function_call>"
     "call:weather{city:<escape>Rome<escape>,days:1}<end_function_call>",
     "T(a" BOTH},
    /* Kimi K2 */
    {"<|tool_calls_section_begin|>",
     "k<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>" PARIS
     "<|tool_call_end|><|tool_call_begin|>stop<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|"
     ">",
     "T(k)C(weather " PARIS " functions.weather:0)C(stop {} stop)"},
    /* Seed, MiniMax M2 and M1, MiniCPM, functionary */
    {"</seed:think><seed:tool_call>",
     "<seed:think>\nhm\n</seed:think>\nx<seed:tool_call>\n<function=weather>\n<parameter=city>Paris</parameter>\n"
     "<parameter=days>3</parameter>\n</function>\n</seed:tool_call>\n<seed:tool_call><function=weather>"
     "<parameter=city>Rome</parameter><parameter=days>1</parameter></function></seed:tool_call>",
     "H(hm)T(x" BOTH},
    {"minimax:tool_call",
     "m\n<minimax:tool_call>\n<invoke name=\"weather\">\n<parameter name=\"city\">Paris</parameter>\n<parameter "
     "name=\"days\">3"
     "</parameter>\n</invoke>\n<invoke name=\"weather\"><parameter name=\"city\">Rome</parameter><parameter "
     "name=\"days\">1"
     "</parameter></invoke>\n</minimax:tool_call>",
     "T(m" BOTH},
    {"<tool_calls>",
     "m<tool_calls>\n{\"name\": \"weather\", \"arguments\": " PARIS "}\n{\"name\": \"weather\", \"arguments\": " ROME
     "}\n</tool_calls>",
     "T(m" BOTH},
    {"<function name=",
     "m\n<function name=\"weather\"><param name=\"city\">Paris</param><param name=\"days\">3</param></function>\n"
     "<function name=\"weather\"><param name=\"city\">Rome</param><param name=\"days\">1</param></function>",
     "T(m" BOTH},
    {"<function name=", "<function name=\"stop\"><param name=\"a\"><![CDATA[1 < 2]]></param></function>",
     "C(stop {\"a\": \"1 < 2\"})"},
    {"<function=", "f<function=weather>" PARIS "</function><function=weather>" ROME "</function>", "T(f" BOTH},
    /* LFM 2 */
    {"<|tool_call_start|>",
     "l<|tool_call_start|>[weather(city='Paris', days=3), weather(city=\"Rome\", days=1)]<|tool_call_end|>",
     "T(l" BOTH},
    {"<|tool_call_start|>",
     "<|tool_call_start|>[stop(a='it\\'s\\n', b=[1, {'c': None}], d=(True, False))]<|tool_call_end|>",
     "C(stop {\"a\": \"it's\\n\", \"b\": [1, {\"c\": null}], \"d\": [true, false]})"},
    {"<|tool_call_start|>",
     "<|tool_call_start|>[stop(a=\"Z\\u00fcrich \\x41\\q\\ud83d\\ude00 \\ud83d!\")]<|tool_call_end|>",
     "C(stop {\"a\": \"Zürich A\\\\q\xF0\x9F\x98\x80 \xEF\xBF\xBD!\"})"},
    {"<|tool_call_start|>", "<|tool_call_start|>[{\"name\": \"stop\", \"arguments\": {}}]<|tool_call_end|>",
     "C(stop {})"},
    /* Nemotron 2, Cohere, Apertus, Solar, Phi 4, Granite 3, GigaChat */
    {"<TOOLCALL>",
     "n<TOOLCALL>[{\"name\": \"weather\", \"arguments\": " PARIS "}, {\"name\": \"weather\", \"arguments\": " ROME
     "}]</TOOLCALL>",
     "T(n" BOTH},
    {"<extra_id_1>",
     "n<toolcall> {\"name\": \"weather\", \"arguments\": " PARIS
     "} </toolcall> <toolcall> {\"name\": \"weather\", \"arguments\": " ROME "} </toolcall>",
     "T(n" BOTH},
    {"<|START_THINKING|><|START_ACTION|>",
     "<|START_THINKING|>hm<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"stop\", "
     "\"parameters\": {}}\n]<|END_ACTION|>",
     "H(hm)C(stop {} 0)"},
    {"<|inner_prefix|><|tools_prefix|>",
     "<|inner_prefix|>hm<|inner_suffix|>a<|tools_prefix|>[{\"weather\": " PARIS "}, {\"weather\": " ROME
     "}]<|tools_suffix|>",
     "H(hm)T(a" BOTH},
    {"<|tool_call:begin|>",
     "s<|tool_calls|><|tool_call:begin|>i1<|tool_call:name|>weather<|tool_call:args|>" PARIS "<|tool_call:end|>"
     "<|tool_call:begin|>i2<|tool_call:name|>stop<|tool_call:args|>{}<|tool_call:end|><|calls|>",
     "T(s)C(weather " PARIS " i1)C(stop {} i2)"},
    {"<|tool_call|><|/tool_call|>", "p<|tool_call|>[{\"name\": \"stop\", \"arguments\": {}}]<|/tool_call|> q",
     "T(p)C(stop {})T(q)"},
    {"<|tool_call|>", "<|tool_call|>[{\"name\": \"stop\", \"arguments\": {}}]", "C(stop {})"},
    {"<|function_call|>", "g<|function_call|>{\"name\": \"stop\", \"arguments\": {}}", "T(g)C(stop {})"},
    /* OLMo 3, Command R, HY3, Hunyuan, Llama 4 */
    {"<function_calls>",
     "o\n<function_calls>\nweather(city='Paris', days=3)\nweather(city=\"Rome\", days=1)\n</function_calls>",
     "T(o" BOTH},
    {"<function_calls>", "<function_calls>\nstop(a=true, b=null, c=[1, {'d': False}])\n</function_calls>",
     "C(stop {\"a\": true, \"b\": null, \"c\": [1, {\"d\": false}]})"},
    {"Action:\\n```json",
     "I'll see.\nAction:\n```json\n[\n    {\n        \"tool_name\": \"weather\",\n        \"parameters\": " PARIS
     "\n    },\n    {\n        \"tool_name\": \"weather\",\n        \"parameters\": " ROME "\n    }\n]```",
     "T(I'll see." BOTH},
    {"Action:\\n```json", "Action:\n```json\n{}\n``` Action: one", "T(Action:\n```json\n{}\n``` Action: one)"},
    {"<|/tool|>", "p<|tool_call|>[{\"name\": \"stop\", \"arguments\": {}}]<|/tool_call|>", "T(p)C(stop {})"},
    {"<tool_calls{}></think{}>",
     "<think:opensource>hm</think:opensource>h<tool_calls:opensource>\n<tool_call:opensource>weather"
     "<tool_sep:opensource>\n<arg_key:opensource>city</arg_key:opensource>\n<arg_value:opensource>Paris"
     "</arg_value:opensource>\n<arg_key:opensource>days</arg_key:opensource>\n<arg_value:opensource>3"
     "</arg_value:opensource>\n</tool_call:opensource>\n<tool_call:opensource>stop<tool_sep:opensource>\n"
     "</tool_call:opensource>\n</tool_calls:opensource>",
     "H(hm)T(h)C(weather " PARIS ")C(stop {})"},
    {"<tool_calls>[{",
     "<tool_calls>[{\"name\": \"weather\", \"arguments\": " PARIS "}, {\"name\": \"weather\", \"arguments\": " ROME
     "}]</tool_calls>",
     "C(weather " PARIS ")C(weather " ROME ")"},
    {"<answer><tool_calls>```json",
     "<think>\nhm\n</think>\n<tool_calls>\n<tool_call>weather\n```json\n" PARIS
     "\n```</tool_call>\n<tool_call>weather\n"
     "```json" ROME "```</tool_call></tool_calls>",
     "H(hm)C(weather " PARIS ")C(weather " ROME ")"},
    {"[func_name1(param", "\n[weather(city=\"Paris\", days=3), weather(city='Rome', days=1)]",
     "C(weather " PARIS ")C(weather " ROME ")"},
    {"<|python_end|>",
     "<|python_start|>Let me see.<|python_end|>{\"name\": \"weather\", \"parameters\": " PARIS
     "}{\"name\": \"weather\", \"parameters\": " ROME "}",
     "T(Let me see." BOTH},
    {"<|python_end|>", "<|python_start|><|python_end|>{\"name\": \"stop\", \"parameters\": {}}", "C(stop {})"},
    {"<|python_end|>", "{\"name\": \"stop\", \"parameters\": {}}", "C(stop {})"},
    {"<|python_end|>", "<|python_start|>print(1)<|python_end|>", "T(print(1))"},
    {"functools[",
     "p functools[{\"name\": \"weather\", \"arguments\": " PARIS "}, {\"name\": \"weather\", \"arguments\": " ROME "}]",
     "T(p" BOTH},
    {"functools[", "functools[{\"name\": \"stop\", \"arguments\": {\"a\": [1, \"]\"]}}]",
     "C(stop {\"a\": [1, \"]\"]})"},
    {"functools[", "functools[0]", "T(functools[0])"},
    {"[func_name1(param", "[other(a=1)]", "T([other(a=1)])"},
    {"[func_name1(param", "[1] says [stop()]", "T([1] says [stop()])"},
    /* Marks around the text: Hunyuan, ERNIE 4.5 and Granite 3.3, Cohere */
    {"<answer>", "<think>\nhm\n</think>\n<answer>\na <b>\n</answer>\n", "H(hm)T(a <b>)"},
    {"<answer>", "<think>hm</think>\nno marks </answer>", "H(hm)T(no marks </answer>)"},
    {"<answer><tool_calls>[{",
     "<think>hm</think>\n<answer>So:\n<tool_calls>[{\"name\": \"stop\", \"arguments\": {}}]</tool_calls>\n</answer>",
     "H(hm)T(So:)C(stop {})"},
    {"<answer>", "<answer>a <answer> </answer> b", "T(a <answer>b)"},
    {"<answer>", "a <answer>b</answer>", "T(a <answer>b</answer>)"},
    {"<answer>", "<answer>a</ans", "T(a</ans)"},
    {"<answer>", "<ans", "T(<ans)"},
    {"<response>\\n", "hm</think>\n\n<response>\na\n</response>\n", "T(hm</think>\n\n<response>\na\n</response>\n)"},
    {"<response>\\n", "<think>hm</think>\n\n<response>\na\n</response>\n", "H(hm)T(a)"},
    {"<response></response>", "<think>hm</think><response>a</response>", "H(hm)T(a)"},
    {"<|START_RESPONSE|>", "<|START_THINKING|>hm<|END_THINKING|><|START_RESPONSE|>a<|END_RESPONSE|>", "H(hm)T(a)"},
    {"<|START_TEXT|>", "<|START_THINKING|>hm<|END_THINKING|><|START_TEXT|>a<|END_TEXT|>", "H(hm)T(a)"},
    /* gpt-oss: the recipient of a call before the channel, after it, and as models write it otherwise */
    {HARMONY,
     START ANALYSIS "hm 1 < 2\n\nso<|end|>" START " to=functions.weather<|channel|>commentary json<|message|>" PARIS,
     "H(hm 1 < 2\n\nso)C(weather " PARIS ")"},
    {HARMONY,
     "<|channel|>commentary<|message|>Let me see.<|end|>" START
     "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>" PARIS "<|call|>",
     "T(Let me see.)C(weather " PARIS ")"},
    {HARMONY,
     ANALYSIS "a<|end|>" START
              "<|channel|>analysis to=functions.stop code<|message|>{\"a\": \"<|end|> \\\"}\"}<|call|>" START
              "<|channel|>commentary to=stop<|message|>{}<|end|>" START FINAL "Done.<|return|>",
     "H(a)C(stop {\"a\": \"<|end|> \\\"}\"})C(stop {})T(Done.)"},
    {HARMONY,
     ANALYSIS "a<|end|>" START ANALYSIS "b<|end|>" START "<|channel|>commentary<|message|>c<|end|>" START FINAL "d",
     "H(a\n\nb)T(c\n\nd)"},
    {HARMONY, ANALYSIS "no end", "H(no end)"},
    {HARMONY, "plain <b> text", "T(plain <b> text)"},
    {HARMONY, FINAL " a <|chan ", "T( a <|chan )"},
    {HARMONY, "<|channel|>final <|constrain|>json<|message|>{\"a\": 1}<|return|>", "T({\"a\": 1})"},
    {HARMONY, ANALYSIS "a" FINAL "b", "H(a)T(b)"}, /* without an end */
    {HARMONY, ANALYSIS "a<|end|>" START "<|channel|>fin", "H(a)"},
    {HARMONY, "<|channel|>analysis to=python code<|message|>print(1)<|end|>" START FINAL "1", "H(print(1))T(1)"},
    {HARMONY, "<|channel|>commentary to=functions.stop code<|message|>print(1)<|call|>", "T(print(1))"},
    {HARMONY, FINAL "a<|end|><|start|>user<|message|>b", "T(a\n\n<|start|>user<|message|>b)"},
    {HARMONY, ANALYSIS "a<|end|>" START "b", "H(a)T(b)"},
    {HARMONY, ANALYSIS "a<|end|>" START START "<|message|>b", "H(a)T(b)"},
    {HARMONY, FINAL "<|end|>", ""},
    /* Whatever the template: thoughts at the beginning, and text. */
    {"", " \n<think>a</think>b", "H(a)T(b)"},
    {"", "b <think>a</think>", "T(b <think>a</think>)"},
    {"", "<think>a", "H(a)"},
    {"", "\n</think>\n\nb</think>", "T(b</think>)"}, /* which the prompt had closed */
    {"", "</thin", "T(</thin)"},
    {"", "<think></think>\n\n", ""},
    {"", "\n\n a <thin", "T(\n\n a <thin)"},
    {"", " \n ", "T( \n )"},
    {"", "", ""},
    {"", "<tool_call>{\"name\": \"stop\"}</tool_call>", "T(<tool_call>{\"name\": \"stop\"}</tool_call>)"},
    /* What begins as a call, and is none, is text, all of it; what follows is looked at anew. */
    {"<tool_call>", "a <tool_call>{\"name\": \"stop\", </tool_call> b",
     "T(a <tool_call>{\"name\": \"stop\", </tool_call> b)"},
    {"<tool_call>", "<tool_call>{\"name\": 1}</tool_call>\n<tool_call>{\"name\": \"stop\"}</tool_call> bye",
     "T(<tool_call>{\"name\": 1}</tool_call>)C(stop {})T(bye)"},
    {"<tool_call>", "The `<tool_call>` tag is\n\n used.", "T(The `<tool_call>` tag is\n\n used.)"},
    {"<tool_call>", "between `<tool_call>` and `</tool_call>`", "T(between `<tool_call>` and `</tool_call>`)"},
    {"<tool_call>", "Use it: <tool_call> like this: {", "T(Use it: <tool_call> like this: {)"},
    {"<tool_call>", "<tool_call>weather<arg_key>city</arg_key><arg_value>Paris</arg_value>",
     "T(<tool_call>weather<arg_key>city</arg_key><arg_value>Paris</arg_value>)"},
    {"<tool_call>", "<tool_call>wea", "T(<tool_call>wea)"},
    {"<tool_call>", "<tool_call>{\"name\": \"stop\", \"arguments\": {\"a\": 1e999}}</tool_call>",
     "T(<tool_call>{\"name\": \"stop\", \"arguments\": {\"a\": 1e999}}</tool_call>)"},
    {"<tool_call>", "<tool_call>{\"name\": \"stop\", \"arguments\": {\"a\": \"\\ud83dab\"}}</tool_call>",
     "C(stop {\"a\": \"\xEF\xBF\xBD"
     "ab\"})"},
    {"<tool_call>", "<tool_call>{\"name\": 1}</tool_call>", "T(<tool_call>{\"name\": 1}</tool_call>)"},
    {"<tool_call>", "<tool_call>\n{\"name\": \"stop\", \"argu", "T(<tool_call>\n{\"name\": \"stop\", \"argu)"},
    {"<tool_call>", "<tool_call>{\"name\": \"stop\"}",
     "C(stop {})"}, /* the end of the answer in the place of the mark */
    {"<tool_call>", "<tool_call></tool_call>", "T(<tool_call></tool_call>)"},
    {"<tool_call>", "<tool_call>{\"name\": \"stop\", \"arguments\": [1]}</tool_call>",
     "T(<tool_call>{\"name\": \"stop\", \"arguments\": [1]}</tool_call>)"},
    {"<|tool_call_start|>", "<|tool_call_start|>[f(a=]<|tool_call_end|>",
     "T(<|tool_call_start|>[f(a=]<|tool_call_end|>)"},
    {"[TOOL_CALLS]", "x[TOOL_CALLS]weather[ARGS]{\"city\": \"Pa", "T(x[TOOL_CALLS]weather[ARGS]{\"city\": \"Pa)"},
};

UNIT_TEST(every_format) {
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        expect_parts(formats[i].source, true, "", formats[i].answer, formats[i].expected);
    /* Without tools JSON is text. */
    expect_parts("<|python_tag|>", false, "", "{\"name\": \"stop\", \"parameters\": {}}",
                 "T({\"name\": \"stop\", \"parameters\": {}})");
}

UNIT_TEST(calls_in_pieces) {
    static const struct {
        const char *answer, *expected;
    } others[] = {
        {"<tool_call>{\"name\": \"stop\", \"arguments\": {\"a\": 1e999}}</tool_call>", "C(stop {\"a\": 1e999}!)"},
        {"<tool_call>{\"name\": \"stop\", \"arguments\": {\"a\": \"\\ud83dab\"}}</tool_call>",
         "C(stop {\"a\": \"\\ud83dab\"})"},
        /* an id that comes behind the arguments */
        {"[TOOL_CALLS] [{\"name\": \"weather\", \"arguments\": " PARIS
         ", \"id\": \"abc\"}, {\"name\": \"weather\", \"arguments\": " ROME "}]",
         "C(weather " PARIS ")C(weather " ROME ")"},
        /* cut where its name is known */
        {"<tool_call>weather<arg_key>city</arg_key><arg_value>Paris</arg_value>", "C(weather {\"city\": \"Paris\"!)"},
        {"x[TOOL_CALLS]weather[ARGS]{\"city\": \"Pa", "T(x)C(weather {\"city\": \"Pa!)"},
    };
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        const char *expected = formats[i].expected;
        for (size_t k = 0; k < sizeof others / sizeof *others; k++)
            if (strcmp(others[k].answer, formats[i].answer) == 0) expected = others[k].expected;
        expect_call_pieces(formats[i].source, formats[i].answer, expected);
    }
    static const struct {
        const char *source, *answer, *expected;
    } cases[] = {
        /* cut within the arguments, behind them, before them */
        {"<tool_call>", "a <tool_call>{\"name\": \"stop\", \"arguments\": {\"a\": \"é", "T(a)C(stop {\"a\": \"é!)"},
        {"<tool_call>", "<tool_call>{\"name\": \"stop\", \"arguments\": {\"a\": 1}", "C(stop {\"a\": 1})"},
        {"<tool_call>",
         "<tool_call>{\"name\": \"stop\", \"arguments\": ", "T(<tool_call>{\"name\": \"stop\", \"arguments\": )"},
        /* no JSON, whose mark comes too early or not */
        {"<tool_call>", "<tool_call>{\"name\": \"stop\", \"arguments\": {\"a\": 1, </tool_call> b",
         "C(stop {\"a\": 1, !)T(b)"},
        {"<tool_call>", "<tool_call>{\"name\": \"stop\", \"arguments\": {a}}</tool_call> b", "C(stop {a}!)T(b)"},
        /* a name that is no tool's, where there is no mark */
        {"<|python_tag|>", "{\"name\": \"other\", \"parameters\": {\"a\": 1}}",
         "T({\"name\": \"other\", \"parameters\": {\"a\": 1}})"},
        /* one that comes in pieces, and one that does not */
        {"<TOOLCALL>",
         "<TOOLCALL>[{\"name\": \"stop\", \"arguments\": {}}, {\"arguments\": {}, \"name\": \"weather\"}]</TOOLCALL> x",
         "C(stop {})C(weather {})T(x)"},
        /* a mark twice */
        {"<|observation|>metadata", "stop\n{}<|assistant|><|assistant|>stop\n{}x", "C(stop {})C(stop {})"},
        {"<tool_call>", "<tool_call>{\"name\": \"stop\", \"arguments\": {\"a\": \"</tool_call>\\\"\"}}</tool_call>b",
         "C(stop {\"a\": \"</tool_call>\\\"\"})T(b)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_call_pieces(cases[i].source, cases[i].answer, cases[i].expected);
}

/* Formats with JSON arguments deliver them as they come, after another call, too. */
UNIT_TEST(arguments_come_early) {
    static const struct {
        const char *source, *answer, *expected;
    } cases[] = {
        {"<tool_call>", "<tool_call>{\"name\": \"stop\", \"arguments\": {\"a\": \"b", "C(stop {\"a\": \"b"},
        {"[TOOL_CALLS][ARGS]", "[TOOL_CALLS]stop[ARGS]{}[TOOL_CALLS]stop[CALL_ID]i1[ARGS]{\"a\"",
         "C(stop {})C(stop {\"a\""},
        {"[TOOL_CALLS]",
         "[TOOL_CALLS][{\"name\": \"stop\", \"arguments\": {}, \"id\": \"i\"}, {\"name\": \"stop\", \"arguments\": "
         "{\"a",
         "C(stop {})C(stop {\"a"},
        {DS("calls", "begin"),
         DS("calls", "begin") DS("call", "begin") "function" DSEP "stop\n```json\n{}\n```" DS("call", "end")
             DS("call", "begin") "stop" DSEP "{\"a",
         "C(stop {})C(stop {\"a"},
        {"<|tool_calls_section_begin|>",
         "<|tool_calls_section_begin|><|tool_call_begin|>functions.stop:0<|tool_call_argument_begin|>{}<|tool_call_end|"
         ">"
         "<|tool_call_begin|>functions.stop:1<|tool_call_argument_begin|>{\"a\": [",
         "C(stop {} functions.stop:0)C(stop {\"a\": ["},
        {"<function=", "<function=stop>{\"a\"", "C(stop {\"a\""},
        {"<|tools_prefix|>", "<|tools_prefix|>[{\"stop\": {\"a\"", "C(stop {\"a\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ht_chat_template *t = template_of(cases[i].source);
        transcript found;
        ht_response_reader *r = new_reader(t, ht_jinja_none(), "", &found);
        found.in_pieces = true;
        ht_response_reader_set_call_pieces(r, true);
        for (const char *p = cases[i].answer; *p; p += character(p))
            assert_int_equal(ht_response_put(r, p, character(p)), HT_RESPONSE_OPEN);
        assert_string_equal(found.text.data, cases[i].expected);
        drop(r, &found);
        ht_chat_template_free(t);
    }
}

/* Calls of an answer, each "name arguments" on a line; text is counted. */
typedef struct calls_found {
    ht_text calls;
    size_t n_text;
    bool is_cut;
} calls_found;

static bool find_calls(const ht_answer_piece *piece, void *user) {
    calls_found *f = user;
    if (piece->part == HT_ANSWER_TEXT) f->n_text += piece->n;
    if (piece->part == HT_ANSWER_CALL) ht_text_printf(&f->calls, "%s %s\n", piece->call->name, piece->call->arguments);
    if (piece->part == HT_ANSWER_CALL_BEGIN) ht_text_printf(&f->calls, "%s ", piece->call->name);
    if (piece->part == HT_ANSWER_CALL_ARGUMENTS) ht_text_append(&f->calls, piece->text, piece->n);
    if (piece->part != HT_ANSWER_CALL_END) return true;
    assert_false(f->is_cut); /* nothing follows one that is */
    f->is_cut = piece->cut;
    if (!piece->cut) ht_text_append_str(&f->calls, "\n");
    return true;
}

static calls_found calls_of(const ht_chat_template *t, ht_jinja_value tools, const char *answer, size_t n, bool pieces,
                            bool only_calls) {
    calls_found f = {.n_text = 0};
    ht_response_reader *r;
    assert_int_equal(ht_response_reader_new(t, tools, "", 0, find_calls, &f, &r, NULL), HT_OK);
    ht_response_reader_set_call_pieces(r, pieces);
    if (only_calls) ht_response_reader_set_only_calls(r);
    assert_int_equal(ht_response_put(r, answer, n), HT_RESPONSE_OPEN);
    assert_int_equal(ht_response_end(r), HT_RESPONSE_OPEN);
    ht_response_reader_free(r);
    ht_text_append_str(&f.calls, "");
    return f;
}

/* Checks that an answer cut after n bytes, read without pieces, has only calls of the whole answer, from its first on. */
static void check_whole_calls(const ht_chat_template *t, ht_jinja_value tools, const char *answer, size_t n,
                              const calls_found *whole) {
    calls_found part = calls_of(t, tools, answer, n, false, false);
    if (part.calls.len > whole->calls.len || memcmp(part.calls.data, whole->calls.data, part.calls.len) != 0)
        fail_msg("%s\n  %zu bytes of it: found\n%s\n  of\n%s", answer, n, part.calls.data, whole->calls.data);
    ht_text_discard(&part.calls);
}

/* Whatever the format and wherever an answer is cut, its calls are those of the whole answer as far as they came: the last one has a beginning of
 * its arguments and says that it is cut, or all of them. Where the answer has to be calls nothing of them is text. The number of cuts
 * that leave a part of a call. */
static int check_cuts(const char *source, const char *answer) {
    ht_chat_template *t = template_of(source);
    ht_jinja_arena a = {.limit = 1 << 20, .name = "tools"};
    const ht_jinja_value tools = ht_jinja_json_value(&a, json_quoted(tools_json), sizeof tools_json - 1, "tools");
    calls_found whole = calls_of(t, tools, answer, strlen(answer), true, false);
    calls_found in_one = calls_of(t, tools, answer, strlen(answer), false, false);
    size_t n_calls = 0;
    int n_cut = 0;
    for (size_t n = 0; n <= strlen(answer) && whole.calls.len && !whole.is_cut; n++) {
        if (((unsigned char)answer[n] & 0xC0) == 0x80) continue;
        check_whole_calls(t, tools, answer, n, &in_one);
        calls_found part = calls_of(t, tools, answer, n, true, false),
                    alone = calls_of(t, tools, answer, n, true, true);
        if (part.calls.len > whole.calls.len || memcmp(part.calls.data, whole.calls.data, part.calls.len) != 0 ||
            part.calls.len < n_calls)
            fail_msg("%s\n  %zu bytes of it: found\n%s\n  of\n%s", answer, n, part.calls.data, whole.calls.data);
        assert_true(part.calls.len == alone.calls.len && part.is_cut == alone.is_cut && !alone.n_text);
        n_calls = part.calls.len;
        n_cut += part.is_cut;
        ht_text_discard(&part.calls);
        ht_text_discard(&alone.calls);
    }
    ht_text_discard(&whole.calls);
    ht_text_discard(&in_one.calls);
    ht_jinja_arena_free(&a);
    ht_chat_template_free(t);
    return n_cut;
}

UNIT_TEST(calls_that_are_cut) {
    static const char *const late[] = {"{\"name\": \"stop\"}", "\"parameters\": \"{", "[{\"weather\": "};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        const int n_cut = check_cuts(formats[i].source, formats[i].answer);
        /* A name that is known when the call is whole. */
        bool is_late = !strstr(formats[i].expected, "C(weather {") && !strstr(formats[i].expected, "C(stop {\"");
        for (size_t k = 0; k < sizeof late / sizeof *late; k++) is_late = is_late || strstr(formats[i].answer, late[k]);
        if (!is_late && !n_cut) fail_msg("%s: %s is never cut", formats[i].source, formats[i].answer);
    }
}

/* Of a closing mark that is cut nothing is a part of the calls, in pieces or not; behind whole arguments nothing else need come. */
UNIT_TEST(closing_marks_that_are_cut) {
    static const struct {
        const char *source, *answer, *expected;
    } cases[] = {
        {"<tool_call>", "<tool_call>{\"name\": \"stop\", \"arguments\": {}}\n</tool", "C(stop {})"},
        {"<tool_call>", "<tool_call><function=weather><parameter=days>3</parameter></function>\n</",
         "C(weather {\"days\": 3})"},
        {"<function=", "<function=stop>{\"a\": 1}\n</func", "C(stop {\"a\": 1})"},
        {"<|tool_calls_section_begin|>",
         "<|tool_calls_section_begin|><|tool_call_begin|>functions.stop:0<|tool_call_argument_begin|>{}",
         "C(stop {} functions.stop:0)"},
        {"<|tool_calls_section_begin|>",
         "<|tool_calls_section_begin|><|tool_call_begin|>functions.stop:0<|tool_call_argument_begin|>{}"
         "<|tool_call_end|><|tool_",
         "C(stop {} functions.stop:0)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        expect_parts(cases[i].source, true, "", cases[i].answer, cases[i].expected);
        expect_call_pieces(cases[i].source, cases[i].answer, cases[i].expected);
    }
    expect_call_pieces(
        "<|tool_calls_section_begin|>",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.stop:0<|tool_call_argument_begin|>{}<|t",
        "C(stop {} functions.stop:0)");
}

/* The last message of the prompt has begun the answer. */
UNIT_TEST(messages_that_the_prompt_began) {
    static const char user[] = "<|start|>user<|message|><|channel|>x<|end|>";
    static const struct {
        const char *prompt, *answer, *expected;
    } cases[] = {
        {START, ANALYSIS "a<|end|>" START FINAL "b", "H(a)T(b)"},
        {START, " to=functions.stop<|channel|>commentary json<|message|>{}", "C(stop {})"},
        {START, "<|message|>a", "T(a)"},
        {START, "to be", "T(to be)"},
        {START, "to", "T(to)"},
        {START, "assistant", "T(assistant)"},
        {START, "Well<|end|>", "T(Well)"},
        {START, "", ""},
        {START ANALYSIS, "a<|end|>" START FINAL "b", "H(a)T(b)"},
        {START "<|channel|>ana", "lysis<|message|>a", "H(a)"},
        {START FINAL "so", " far<|return|>", "T( far)"},
        {START ANALYSIS "a<|end|>", START FINAL "b", "T(b)"},
        {"", "so far " FINAL "b", "T(so far \n\nb)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char prompt[200];
        snprintf(prompt, sizeof prompt, "%s%s", *cases[i].prompt ? user : "", cases[i].prompt);
        expect_parts(HARMONY, true, prompt, cases[i].answer, cases[i].expected);
        expect_answer(HARMONY, true, prompt, cases[i].answer, cases[i].expected, true);
    }
    /* Without tools a name alone is no recipient; `functions.` shows a call. */
    expect_parts(HARMONY, false, START, "<|channel|>commentary to=stop<|message|>{}", "T({})");
    expect_parts(HARMONY, false, START, "<|channel|>commentary to=functions.stop<|message|>{}", "C(stop {})");
}

/* A header of more than 512 bytes is text, wherever it was cut: its mark, up to the next one, which may begin a header. */
UNIT_TEST(long_headers) {
    enum { FIELDS = 50, FITTING = 38 }; /* in 512 bytes, with the incomplete mark */
    static const char field[] = "<|channel|>x ";
    ht_text answer = {0}, expected = {0};
    for (int i = 0; i < FIELDS; i++) ht_text_append_str(&answer, field);
    ht_text_append_str(&answer, "<|mess");
    for (int i = 0; i < FIELDS - FITTING; i++) ht_text_printf(&expected, "%s%s", i ? "\n\n" : "T(", field);
    ht_text_append_str(&expected, ")");
    expect_parts(HARMONY, true, "", answer.data, expected.data);
    ht_text_discard(&answer);
    ht_text_discard(&expected);
}

UNIT_TEST(thoughts_that_the_prompt_opened) {
    expect_parts("", false, "user: x\n<think>\n", "a\n</think>\n\nb", "H(a)T(b)");
    expect_parts("", false, "user: x\n<think>", "a", "H(a)");
    expect_parts("", false, "user: x\n<think>\n\n</think>\n\n", "a</think>", "T(a</think>)");
    expect_parts("", false, "user: x\n<think>\n\n</think>", "</think>a", "T(a)");
    expect_parts("", false, "user: <think> x", "a</think>", "T(a</think>)");
    expect_parts("<|channel>", false, "<|channel>thought\n", "a<channel|>b", "H(a)T(b)");
    expect_parts("<|channel>", false, "<|channel>thought\n<channel|>", "b", "T(b)");
}

/* Special tokens are marks or nothing: what else a model generates of them does not show. */
UNIT_TEST(special_tokens) {
    ht_chat_template *t = template_of("<|channel><tool_call|>");
    transcript found;
    ht_response_reader *r = new_reader(t, ht_jinja_none(), "", &found);
    static const struct {
        bool special, wanted;
        const char *text;
    } tokens[] = {{true, false, "<bos>"},       {true, true, "<|channel>"},   {false, false, "thought\n"},
                  {false, false, "hm"},         {true, false, "<|turn>"},     {true, true, "<channel|>"},
                  {false, false, "<b> "},       {true, false, "<channel|>"},  {true, false, "<pad>"},
                  {true, true, "<|tool_call>"}, {false, false, "call:f{a:"},  {true, true, "<|\"|>"},
                  {false, false, "<tool_call"}, {true, true, "<|\"|>"},       {false, false, "}"},
                  {true, true, "<tool_call|>"}, {true, false, "<tool_call|>"}};
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        if (tokens[i].special) assert_int_equal(ht_response_wants_special(r, tokens[i].text), tokens[i].wanted);
        assert_int_equal(tokens[i].special ? ht_response_put_special(r, tokens[i].text)
                                           : ht_response_put(r, tokens[i].text, strlen(tokens[i].text)),
                         HT_RESPONSE_OPEN);
    }
    assert_int_equal(ht_response_end(r), HT_RESPONSE_OPEN);
    assert_string_equal(finish(&found), "H(hm)T(<b>)C(f {\"a\": \"<tool_call\"})");
    drop(r, &found);
    ht_chat_template_free(t);
}

/* What is left of an answer when it is known to have no calls: they are text, but for those that were handed over. */
UNIT_TEST(calls_that_are_over) {
    static const char marked[] = "<think>a</think>x<tool_call>{\"name\": \"stop\", \"arguments\": {}}</tool_call>y",
                      bare[] = "{\"name\": \"stop\", \"parameters\": {}}";
    const size_t n_whole = strlen(marked) - 1, n_begun = (size_t)(strstr(marked, "{}") - marked) + 1;
    for (int how = 0; how < 3; how++) {
        const char *answer = how < 2 ? marked : bare;
        for (size_t at = 0; at <= strlen(answer); at++) {
            ht_chat_template *t = template_of(how < 2 ? "<tool_call>" : "<|python_tag|>");
            ht_jinja_arena arena = {.limit = 1 << 20, .name = "tools"};
            static const char list[] = "[{\"name\": \"stop\"}]";
            transcript found;
            ht_response_reader *r = new_reader(t, ht_jinja_json_value(&arena, list, strlen(list), "tools"), "", &found);
            ht_response_reader_set_call_pieces(r, how == 1);
            found.in_pieces = how == 1;
            for (size_t i = 0; i <= strlen(answer); i++) {
                if (i == at) ht_response_reader_end_calls(r);
                if (answer[i]) assert_int_equal(ht_response_put(r, answer + i, 1), HT_RESPONSE_OPEN);
            }
            assert_int_equal(ht_response_end(r), HT_RESPONSE_OPEN);
            const bool is_call = how < 2 && at >= (how ? n_begun : n_whole);
            const char *expected = how == 2 ? "T({\"name\": \"stop\", \"parameters\": {}})"
                                   : is_call
                                       ? "H(a)T(x)C(stop {})T(y)"
                                       : "H(a)T(x<tool_call>{\"name\": \"stop\", \"arguments\": {}}</tool_call>y)";
            assert_string_equal(finish(&found), expected);
            drop(r, &found);
            ht_jinja_arena_free(&arena);
            ht_chat_template_free(t);
        }
    }
}

/* Nothing is handed over after a refusal. */
UNIT_TEST(a_reader_who_refuses) {
    static const char answer[] = "<think>a b c</think>d e<tool_call>{\"name\": \"stop\"}</tool_call>f g";
    ht_chat_template *t = template_of("<tool_call>");
    for (int left = 0; left < 6; left++) {
        transcript found;
        ht_response_reader *r = new_reader(t, ht_jinja_none(), "", &found);
        found.left = left;
        ht_response_state now = HT_RESPONSE_OPEN;
        for (const char *p = answer; *p && now == HT_RESPONSE_OPEN; p++) now = ht_response_put(r, p, 1);
        assert_int_equal(now, HT_RESPONSE_REFUSED);
        const size_t length = found.text.len;
        assert_int_equal(ht_response_put(r, "x y", 3), HT_RESPONSE_REFUSED);
        assert_int_equal(ht_response_end(r), HT_RESPONSE_REFUSED);
        assert_int_equal(found.text.len, length);
        drop(r, &found);
    }
    ht_chat_template_free(t);
}

/* An end that never comes, again and again, is looked for a bounded number of times. */
UNIT_TEST(many_ends) {
    ht_text answer = {0}, expected = {0};
    ht_text_append_str(&answer, "<tool_call>");
    for (int i = 0; i < 200; i++) ht_text_append_str(&answer, "{</tool_call>");
    ht_text_printf(&expected, "T(%s)", answer.data);
    expect_parts("<tool_call>", true, "", answer.data, expected.data);
    ht_text_discard(&answer);
    ht_text_discard(&expected);
}

UNIT_TEST(through_the_public_function) {
    ht_chat_template *t = template_of("<tool_call>");
    transcript found = {.left = -1};
    ht_error err = {0};
    static const char answer[] =
        "hm</think>a\xff<tool_call><function=weather><parameter=city>1</parameter></function></tool_call>";
    ht_chat *chat;
    assert_works(ht_chat_new, &chat);
    assert_works(ht_chat_set_tools, chat, json_quoted(tools_json), sizeof tools_json - 1);
    assert_works(ht_chat_read_answer, chat, t, "<think>\n", answer, sizeof answer - 1, note, &found);
    ht_chat_free(chat);
    assert_string_equal(finish(&found), "H(hm)T(a\xEF\xBF\xBD)C(weather {\"city\": \"1\"})");
    ht_text_discard(&found.text);
    found = (transcript){.left = -1};
    assert_works(ht_chat_read_answer, NULL, t, NULL, "a", 1, note, &found);
    assert_string_equal(finish(&found), "T(a)");
    ht_text_discard(&found.text);
    found = (transcript){0};
    assert_int_equal(ht_chat_read_answer(NULL, t, NULL, "a", 1, note, &found, &err), HT_ERR_CANCELLED);
    ht_chat_template_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format),
        cmocka_unit_test(calls_in_pieces),
        cmocka_unit_test(arguments_come_early),
        cmocka_unit_test(calls_that_are_cut),
        cmocka_unit_test(closing_marks_that_are_cut),
        cmocka_unit_test(messages_that_the_prompt_began),
        cmocka_unit_test(long_headers),
        cmocka_unit_test(thoughts_that_the_prompt_opened),
        cmocka_unit_test(special_tokens),
        cmocka_unit_test(calls_that_are_over),
        cmocka_unit_test(a_reader_who_refuses),
        cmocka_unit_test(many_ends),
        cmocka_unit_test(through_the_public_function),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
