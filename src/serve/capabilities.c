#include "serve/capabilities.h"

#include "serve/infill.h"

#include <hearth/template.h>

#include <string.h>

#define TOOL "weather_in_place"

/* The text for a conversation of one question, with and without a tool, with thinking on or off; NULL: the template does not take it. */
static char *render(const ht_chat_template *t, bool tool, bool thinks) {
    static const char messages[] = "[{\"role\":\"user\",\"content\":\"Hello\"}]",
                      tools[] =
                          "[{\"type\":\"function\",\"function\":{\"name\":\"" TOOL "\",\"description\":\"Weather\","
                          "\"parameters\":{\"type\":\"object\",\"properties\":{\"place\":{\"type\":\"string\","
                          "\"description\":\"Place\"}},\"required\":[\"place\"]}}}]";
    const char *flag = thinks ? "true" : "false";
    const ht_template_variable variables[] = {{"messages", messages, sizeof messages - 1},
                                              {"add_generation_prompt", "true", 4},
                                              {"bos_token", "\"\"", 2},
                                              {"eos_token", "\"\"", 2},
                                              {"enable_thinking", flag, strlen(flag)},
                                              {"thinking", flag, strlen(flag)},
                                              {"tools", tools, sizeof tools - 1}};
    const size_t n = sizeof variables / sizeof *variables;
    char *text = NULL;
    size_t length = 0;
    if (ht_chat_template_render(t, variables, tool ? n : n - 1, &text, &length, NULL)) return NULL;
    return text;
}

static bool writes_tools(const ht_chat_template *t) {
    char *text = render(t, true, false);
    const bool found = text && strstr(text, TOOL);
    ht_text_free(text);
    return found;
}

/* Whether the choice changes what is written; or thoughts are marked, by those models that think always. */
static bool thinks(const ht_chat_template *t, const char *source) {
    static const char *const marks[] = {"<think>", "</think>", "<|channel|>analysis", "<|channel>thought", "[THINK]"};
    char *on = render(t, false, true), *off = render(t, false, false);
    bool found = on && off && strcmp(on, off) != 0;
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) found = found || strstr(source, marks[i]);
    ht_text_free(on);
    ht_text_free(off);
    return found;
}

serve_capabilities serve_capabilities_of(const ht_tokenizer *t) {
    serve_capabilities out = {0};
    ht_chat_template *parsed = NULL;
    const char *source = t ? ht_tokenizer_chat_template(t) : NULL;
    out.insert = t && serve_infill_marks_of(t, &(serve_infill_marks){0});
    if (!source || ht_chat_template_parse(source, strlen(source), "the chat template", &parsed, NULL)) return out;
    out.template = true;
    out.tools = ht_tokenizer_tool_template(t) || writes_tools(parsed);
    out.thinking = thinks(parsed, source);
    ht_chat_template_free(parsed);
    return out;
}
