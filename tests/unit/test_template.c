/* Chat templates: what they write, where the text comes from, and what ends them. Their equality with jinja2 is
 * tests/golden/templates.py's. */
#include "support/test.h"
#include "template/template.h"

#include <hearth/template.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ht_status render(const char *source, const char *variables, const ht_template_limits *limits, char **text,
                        ht_text_run **runs, size_t *n_runs, ht_error *err) {
    ht_chat_template *t;
    size_t n;
    *text = NULL;
    *err = (ht_error){0};
    const ht_template_variable all = {NULL, variables, strlen(variables)};
    ht_status status = ht_chat_template_parse(source, strlen(source), "t", &t, err);
    if (status) return status;
    status = ht_chat_template_render_within(t, &all, 1, limits, text, &n, runs, n_runs, err);
    ht_chat_template_free(t);
    if (!status) assert_int_equal(n, strlen(*text));
    return status;
}

static void writes(const char *source, const char *variables, const char *expected) {
    char *text;
    ht_error err;
    if (render(source, variables, NULL, &text, NULL, NULL, &err)) fail_msg("%s: %s", source, err.message);
    if (strcmp(text, expected)) fail_msg("%s\nwrites   \"%s\"\nexpected \"%s\"", source, text, expected);
    free(text);
}

static void fails(const char *source, const char *variables, const ht_template_limits *limits, ht_status expected,
                  const char *word) {
    char *text;
    ht_error err;
    ht_status status = render(source, variables, limits, &text, NULL, NULL, &err);
    if (status != expected || text) fail_msg("%s: status %d (%s), expected %d", source, status, err.message, expected);
    if (!strstr(err.message, word)) fail_msg("\"%s\" does not say \"%s\"", err.message, word);
}

static const char talk[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \" Hi <|x|> \"}, {\"role\": \"assistant\", \"content\": "
    "null, \"reasoning\": \"why\"}], \"number\": 1.0, \"big\": 123456789012345678901234567890}";

UNIT_TEST(texts) {
    writes("{% for m in messages %}\n  {% if m.content %}\n{{ loop.index }}:{{ m.content | trim }}\n  {% endif %}\n{% "
           "endfor %}\n",
           talk, "1:Hi <|x|>\n");
    writes("{{ messages[1] | tojson }}", talk, "{\"role\": \"assistant\", \"content\": null, \"reasoning\": \"why\"}");
    writes("{{ number }} {{ big }} {{ 1e22 }} {{ 1e16 }} {{ 0.1 + 0.2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 2 ** -1 }}",
           talk, "1.0 123456789012345678901234567890 1e+22 1e+16 0.30000000000000004 -4 2 0.5");
    writes("{{ [1, 'a\"', \"b'\", none, true, (2,), {'k': 'é\\n'}] }}", "{}",
           "[1, 'a\"', \"b'\", None, True, (2,), {'k': 'é\\n'}]");
    writes("{{ -2 ** 2 }} {{ 1 ~ 2 * 3 }} {{ 1 < 2 == true }} {{ 'a' in 'cab' }} {{ x is defined }} {{ x }}|", "{}",
           "4 16 False True False |");
    writes("{% macro m(a, b=2) %}{{ a }}{{ b }}{{ caller() if caller }}{% endmacro %}{{ m(1) }}{% call m(3, b=4) %}!{% "
           "endcall %}",
           "{}", "1234!");
    writes("{% set n = namespace(i=0) %}{% for x in range(4) if x % 2 %}{% set n.i = n.i + x %}{% set y = x %}{% "
           "endfor %}{{ n.i }}{{ y }}",
           "{}", "4");
    writes("{{ 'Straße'|upper }} {{ 'Straße ΣΑΣ'.casefold() }} {{ '\u00a0 x\u3000' | trim }} {{ 'abcdef'[::-2] }} {{ "
           "'a b  c '.split(none, 1) }}",
           "{}", "STRASSE strasse σασ x fdb ['a', 'b  c ']");
    writes("{% generation %}{% set a = 1 %}in{% endgeneration %}{{ a is defined }}", "{}", "inFalse");
    writes("{{ tools is none }} {{ {'b': 1, 'a': [1.5, none]} | tojson(indent=1, sort_keys=true) }}", "{}",
           "True {\n \"a\": [\n  1.5,\n  null\n ],\n \"b\": 1\n}");
}

UNIT_TEST(errors) {
    fails("a\n{{ b.c }}", "{}", NULL, HT_ERR_FORMAT, "t, line 2, column 4: 'b' is undefined");
    fails("{{ 1 + 'a' }}", "{}", NULL, HT_ERR_FORMAT, "int + str");
    fails("{{ raise_exception('no ' ~ 2) }}", "{}", NULL, HT_ERR_ARGUMENT, "no 2");
    fails("{% if x %}", "{}", NULL, HT_ERR_FORMAT, "endif");
    fails("{% for x in y %}{% endif %}", "{}", NULL, HT_ERR_FORMAT, "endif");
    fails("{{ 'a", "{}", NULL, HT_ERR_FORMAT, "does not end");
    fails("{{ a | nothing }}", "{}", NULL, HT_ERR_FORMAT, "no filter 'nothing'");
    fails("{{ a is nothing }}", "{}", NULL, HT_ERR_FORMAT, "no test 'nothing'");
    fails("{% include 'x' %}", "{}", NULL, HT_ERR_FORMAT, "include");
    fails("{{ (1] }}", "{}", NULL, HT_ERR_FORMAT, "closes nothing");
    fails("{{ 1 }}", "{\"a\": nope}", NULL, HT_ERR_FORMAT, "the variables");
    fails("{{ 1 }}", "[1]", NULL, HT_ERR_FORMAT, "not an object");
    fails("\xff", "{}", NULL, HT_ERR_FORMAT, "UTF-8");
    writes("{% if false %}{{ a | nothing }}{% endif %}ok", "{}", "ok");
    fails("{% set _ = l.append(1) %}", "{\"l\": []}", NULL, HT_ERR_FORMAT,
          "access to attribute 'append' of 'list' object is unsafe");
    fails("{{ d['update'](a=1) }}", "{\"d\": {}}", NULL, HT_ERR_FORMAT, "'update' of 'dict' object is unsafe");
    writes("{{ d['pop'] }}{{ d.pop }}{{ d.clear is defined }}{{ d.copy() }}", "{\"d\": {\"pop\": 1}}",
           "1False{'pop': 1}");
}

UNIT_TEST(bounds) {
    char deep[4096];
    fails("{% for x in range(100000) %}{% for y in range(100000) %}{% endfor %}{% endfor %}", "{}",
          &(ht_template_limits){.steps = 100000}, HT_ERR_LIMIT, "steps");
    /* Work on long strings counts by their length. */
    fails("{% set s = 'é' * 4000000 %}{% for i in range(100000) %}{% if s[3999999] == 'x' %}{% endif %}{% endfor %}",
          "{}", &(ht_template_limits){.steps = 1000000}, HT_ERR_LIMIT, "steps");
    fails("{% set s = 'a' * 4000000 %}{% set t = s ~ '' %}{% for i in range(100000) %}{% if s != t %}{% endif %}{% "
          "endfor %}",
          "{}", &(ht_template_limits){.steps = 1000000}, HT_ERR_LIMIT, "steps");
    fails("{% set s = 'a' * 4000000 %}{% for i in range(100000) %}{% if s.isdigit() or s.find('b') > 0 %}{% endif %}{% "
          "endfor %}",
          "{}", &(ht_template_limits){.steps = 1000000}, HT_ERR_LIMIT, "steps");
    fails("{{ range(1000000000) }}", "{}", NULL, HT_ERR_LIMIT, "range");
    fails("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{}", NULL, HT_ERR_LIMIT, "deep");
    fails("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "{}", NULL, HT_ERR_LIMIT, "deep");
    fails("{% for i in range(99999) %}0123456789{% endfor %}", "{}", &(ht_template_limits){.output_bytes = 100000},
          HT_ERR_LIMIT, "writes");
    fails("{% set n = namespace(s='0123456789') %}{% for i in range(60) %}{% set n.s = n.s + n.s %}{% endfor %}", "{}",
          NULL, HT_ERR_LIMIT, "MB");
    fails("{{ 'a' * 1000000000 }}", "{}", NULL, HT_ERR_LIMIT, "large");
    fails("{{ 9 ** 99 }}", "{}", NULL, HT_ERR_LIMIT, "large");
    fails("{% set n = namespace(l=[]) %}{% for i in range(300) %}{% set n.l = [n.l] %}{% endfor %}{{ n.l }}", "{}",
          NULL, HT_ERR_LIMIT, "deep");
    static const char *const nests[] = {"(", "[", "-", "not ", "{% if 1 %}", "{{ x if "};
    for (size_t i = 0; i < sizeof nests / sizeof *nests; i++) {
        size_t n = (size_t)snprintf(deep, sizeof deep, nests[i][0] == '{' ? "" : "{{ ");
        for (int j = 0; j < 300; j++) n += (size_t)snprintf(deep + n, sizeof deep - n, "%s", nests[i]);
        char *text;
        ht_error err;
        assert_int_not_equal(render(deep, "{}", NULL, &text, NULL, NULL, &err), HT_OK);
        assert_null(text);
    }
}

/* Which bytes came from the variables, through trims, slices, joins, replacements and JSON. */
UNIT_TEST(origins) {
    static const struct {
        const char *source, *marked; /* what came from the variables is in brackets */
    } cases[] = {
        {"<|im|>{{ messages[0].content }}<|im|>", "<|im|>[ Hi <|x|> ]<|im|>"},
        {"{{ messages[0].content | trim | replace('<|', '<|') }}", "[Hi ]<|[x|>]"},
        {"{{ '<|x|>' + messages[0].content[1:3] ~ '<|x|>' }}", "<|x|>[Hi]<|x|>"},
        {"{{ messages[0].content.split('<|') | join('-') | upper }}", "[ HI ]-[X|> ]"},
        {"{{ [messages[0].role, 'r'] }}{{ {'k': messages[0].role} | tojson }}", "['[user]', 'r']{\"k\": \"[user]\"}"},
        {"{% macro m(x) %}{% set y %}({{ x }}){% endset %}{{ y }}{% endmacro %}{{ m(messages[0].role) }}", "([user])"},
        {"{{ '%s-%s' | format('a', messages[0].role) }}{{ '{}'.format(messages[0].role) }}", "a-[useruser]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text, marked[256];
        ht_text_run *runs;
        size_t n_runs, at = 0, n = 0;
        assert_works(render, cases[i].source, talk, NULL, &text, &runs, &n_runs);
        for (size_t j = 0; j < n_runs; at = runs[j++].end)
            n += (size_t)snprintf(marked + n, sizeof marked - n, runs[j].input ? "[%.*s]" : "%.*s",
                                  (int)(runs[j].end - at), text + at);
        assert_string_equal(marked, cases[i].marked);
        free(runs);
        free(text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(texts), cmocka_unit_test(errors), cmocka_unit_test(bounds),
                                       cmocka_unit_test(origins)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
