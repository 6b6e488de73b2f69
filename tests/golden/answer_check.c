/* Tells whether the grammars of tool calls accept answers, for a script that has chat templates write them (answers.py). Standard
 * input has items, each a line `KIND BYTES` and so many bytes after it, with the end of a line after them:
 *
 *     T  the source of a chat template
 *     J  tools as JSON
 *     P  a prompt
 *     A  an answer to it, with calls or not; R: one that has to be calls
 *
 * A and R are answered by a line: `yes`, `no N` with the number of accepted bytes, or `error STATUS MESSAGE`. */
#include "base/error.h"
#include "chat/answer_formats.h"
#include "chat/response_rules.h"
#include "grammar/automaton.h"
#include "template/eval.h"
#include "template/template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AUTO, REQUIRED, N_CHOICES };

static ht_chat_template *template;
static char *tools, *prompt;
static ht_automaton *automaton[N_CHOICES]; /* of the template and the tools; NULL: not made yet */

static void forget_automata(void) {
    for (int i = 0; i < N_CHOICES; i++) {
        ht_automaton_free(automaton[i]);
        automaton[i] = NULL;
    }
}

static ht_status make_automaton(int choice, ht_error *err) {
    ht_jinja_arena a = {.limit = (size_t)16 << 20, .name = "tools", .err = err};
    const ht_tool_request q = {.template = template,
                               .tools = ht_jinja_json_value(&a, tools, strlen(tools), "tools"),
                               .choice = choice == REQUIRED ? HT_TOOL_CHOICE_REQUIRED : HT_TOOL_CHOICE_AUTO,
                               .parallel = true};
    ht_text spelled = {0};
    ht_rules *rules = NULL;
    ht_status status = a.status;
    if (!status) status = ht_response_rules_new(&q, &rules, &spelled, err);
    if (!status && !rules) status = ht_fail(err, HT_ERR_UNSUPPORTED, "the template uses no known tool-call format");
    if (!status) status = ht_automaton_new(rules, &automaton[choice], err);
    ht_text_discard(&spelled);
    ht_jinja_arena_free(&a);
    return status;
}

static void check(int choice, const char *text, size_t n) {
    ht_error err = {0};
    if (!automaton[choice] && make_automaton(choice, &err)) {
        printf("error %d %s\n", (int)err.status, err.message);
        return;
    }
    ht_automaton *a = automaton[choice];
    const ht_reasoning_format *reasoning = ht_reasoning_format_of(ht_chat_template_source(template));
    bool with_title;
    const bool is_open = ht_reasoning_is_open(reasoning, prompt, strlen(prompt), &with_title);
    const ht_grammar_start start = is_open ? HT_START_IN_REASONING : HT_START_ANSWER;
    uint32_t at = a->start[(int)start < a->rules->n_starts ? start : HT_START_TEXT];
    size_t accepted = 0;
    while (accepted < n) {
        at = ht_automaton_feed(a, at, text + accepted, 1);
        if (!ht_automaton_is_live(a, at)) break;
        accepted++;
    }
    if (ht_automaton_status(a, &err))
        printf("error %d %s\n", (int)err.status, err.message);
    else if (accepted == n && ht_automaton_may_end(a, at))
        puts("yes");
    else
        printf("no %zu\n", accepted);
}

/* Takes over the text. */
static bool take(char kind, char *text, size_t n) {
    ht_error err = {0};
    char **kept = kind == 'J' ? &tools : kind == 'P' ? &prompt : NULL;
    if (kind == 'T' || kind == 'J') forget_automata();
    if (kept) {
        free(*kept);
        *kept = text;
        return true;
    }
    if (kind == 'T') {
        ht_chat_template_free(template);
        if (ht_chat_template_parse(text, n, "the template", &template, &err)) fprintf(stderr, "%s\n", err.message);
    } else {
        check(kind == 'R' ? REQUIRED : AUTO, text, n);
        fflush(stdout);
    }
    free(text);
    return template != NULL;
}

int main(void) {
    char line[100], kind;
    size_t n;
    bool good = true;
    while (good && fgets(line, sizeof line, stdin) && sscanf(line, "%c %zu", &kind, &n) == 2) {
        char *text = malloc(n + 1);
        if (!text || fread(text, 1, n, stdin) != n || getchar() != '\n') return 1;
        text[n] = '\0';
        good = take(kind, text, n);
    }
    forget_automata();
    ht_chat_template_free(template);
    free(tools);
    free(prompt);
    return good ? 0 : 1;
}
