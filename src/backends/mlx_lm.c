#include "backends/mlx_lm.h"

#include "backends/backends.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/options.h"
#include "base/plural.h"
#include "base/text.h"
#include "tokenizer/tokenizer.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME "mlx_lm"

/* Time that a child gets to exit after a quit request. */
static const double quit_seconds = 2;

/* ---- failures ---- */

/* Ends the child and keeps the error: the message in `err`, with the child's last lines of standard error. */
static ht_status end_child(ht_mlx_model *m, ht_error *err) {
    if (!m->child) return err->status;
    ht_child_add_errors(m->child, err);
    ht_child_end(m->child, 0);
    m->child = NULL;
    m->failure = *err;
    return err->status;
}

ht_status ht_mlx_refuse(ht_mlx_call *c, ht_status status, ht_error *err, const char *fmt, ...) {
    char message[256];
    ht_error own = {0}, *e = err ? err : &own;
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    ht_utf8_trim(message);
    ht_fail(e, status, NAME "'s child process %s", message);
    return end_child(c->m, e);
}

/* ---- turns ---- */

ht_status ht_mlx_enter(ht_mlx_model *m, const ht_cancel *cancel, ht_mlx_call *c, ht_error *err) {
    *c = (ht_mlx_call){.m = m};
    ht_calls_enter(&m->calls, &c->call, cancel);
    ht_status st = ht_turns_enter(&m->turns, &c->call.cancel.flag, err);
    if (st) {
        ht_calls_leave(&m->calls, &c->call);
        return st;
    }
    if (m->child) return HT_OK;
    ht_mlx_leave(c);
    return ht_fail(err, m->failure.status, "the model has failed and must be loaded again: %s", m->failure.message);
}

void ht_mlx_leave(ht_mlx_call *c) {
    ht_turns_leave(&c->m->turns);
    ht_calls_leave(&c->m->calls, &c->call);
}

ht_child_wait ht_mlx_wait(const ht_mlx_call *c, double seconds, const char *what) {
    return ht_child_wait_for(seconds, what, &c->call.cancel.flag);
}

/* ---- requests ---- */

/* Writes a line. A failure ends the child, as a partial line would corrupt the next one. */
static ht_status write_line(ht_mlx_call *c, const char *line, const ht_child_wait *wait, ht_error *err) {
    ht_error own = {0}, *e = err ? err : &own;
    const ht_status st = ht_child_write(c->m->child, line, strlen(line), wait, e);
    return st && st != HT_ERR_CANCELLED ? end_child(c->m, e) : st;
}

void ht_mlx_abandon(ht_mlx_call *c) {
    if (!c->m->child) return;
    const ht_child_wait wait = ht_child_wait_for(c->m->next_seconds, "a place for a message", NULL);
    char *line = ht_mlx_request_write(++c->m->last_id, "cancel", ht_json_pack("{sI}", "target", (int64_t)c->id));
    c->m->unfinished = c->id;
    if (line) (void)write_line(c, line, &wait, NULL); /* without it the request runs to its end */
    free(line);
}

static ht_status read_event(ht_mlx_call *c, int64_t id, const ht_child_wait *wait, ht_mlx_event *e, ht_error *err) {
    char *line;
    size_t n;
    ht_error own = {0}, *to = err ? err : &own;
    memset(e, 0, sizeof *e);
    ht_status st = ht_child_read(c->m->child, wait, &line, &n, to);
    if (st == HT_ERR_CANCELLED) return st;
    if (!st) st = ht_mlx_event_read(line, n, e, to);
    if (st) return end_child(c->m, to);
    if (e->id == id) return HT_OK;
    return ht_mlx_refuse(c, HT_ERR_FORMAT, to, "answers request %lld, expected %lld", (long long)e->id, (long long)id);
}

/* Reads the remaining events of a cancelled request. */
static ht_status finish_last(ht_mlx_call *c, ht_error *err) {
    const ht_child_wait wait = ht_mlx_wait(c, c->m->next_seconds, "the end of the last call");
    while (c->m->unfinished) {
        ht_mlx_event e;
        const ht_status st = read_event(c, c->m->unfinished, &wait, &e, err);
        const bool late = !st && ht_now_seconds() > wait.until;
        if (!st && (e.kind == HT_MLX_DONE || e.kind == HT_MLX_ERROR)) c->m->unfinished = 0;
        ht_mlx_event_free(&e);
        if (st) return st;
        if (late && c->m->unfinished)
            return ht_mlx_refuse(c, HT_ERR_LIMIT, err, "did not end a call that was cancelled within %g seconds",
                                 wait.seconds);
    }
    return HT_OK;
}

ht_status ht_mlx_send(ht_mlx_call *c, const char *command, ht_json *more, ht_error *err) {
    ht_mlx_model *m = c->m;
    const ht_status st = finish_last(c, err);
    if (st) {
        ht_json_decref(more);
        return st;
    }
    char *line = ht_mlx_request_write(++m->last_id, command, more);
    if (!line) return ht_fail_memory(err, 0, "a request");
    c->id = m->last_id;
    const ht_child_wait wait = ht_mlx_wait(c, m->next_seconds, "a place for a message");
    const ht_status written = write_line(c, line, &wait, err);
    free(line);
    return written;
}

ht_status ht_mlx_next(ht_mlx_call *c, const ht_child_wait *wait, ht_mlx_event_kind kind, ht_mlx_event *e,
                      ht_error *err) {
    const ht_status st = read_event(c, c->id, wait, e, err);
    if (st == HT_ERR_CANCELLED) ht_mlx_abandon(c);
    if (st) return st;
    if (e->kind == HT_MLX_ERROR) return ht_fail(err, e->status, NAME ": %s", e->message);
    const bool may_end = kind == HT_MLX_TOKENS || kind == HT_MLX_KEYS;
    if (e->kind == kind || (may_end && e->kind == HT_MLX_DONE)) return HT_OK;
    return ht_mlx_refuse(c, HT_ERR_FORMAT, err, "says \"%s\", expected \"%s\"", ht_mlx_event_name(e->kind),
                         ht_mlx_event_name(kind));
}

/* ---- text ---- */

enum { CONFIG_BYTES_MAX = 64 << 20 };

/* Text of a JSON file in fresh memory; NULL when the file does not exist. */
static ht_status read_text(const char *directory, const char *name, char **text, size_t *size, ht_error *err) {
    char *path = ht_path_join(directory, name);
    *text = NULL;
    *size = 0;
    if (!path) return ht_fail_memory(err, strlen(directory) + strlen(name), "a path");
    const ht_status st = ht_path_exists(path) ? ht_file_read_all(path, CONFIG_BYTES_MAX, text, size, err) : HT_OK;
    free(path);
    return st;
}

/* Reads EOS ids of both configurations and sampling values of the second. mlx-lm reads the other fields. */
static ht_status read_configurations(const char *directory, ht_mlx_text *t, ht_error *err) {
    static const char *const names[] = {"config.json", "generation_config.json"};
    ht_config *c = calloc(1, sizeof *c);
    ht_status st = c ? HT_OK : ht_fail_memory(err, sizeof *c, "a configuration");
    if (c) c->vocab = t->tokenizer ? ht_tokenizer_vocab_size(t->tokenizer) : INT32_MAX;
    for (int i = 0; i < 2 && !st; i++) {
        char *text;
        size_t size;
        st = read_text(directory, names[i], &text, &size, err);
        if (!st && i == 1) st = ht_sampling_from_json((ht_json_text){text, size}, &t->sampling, err);
        if (!st && text) st = ht_config_eos_read((ht_json_text){text, size}, names[i], c, err);
        free(text);
    }
    if (!st) st = ht_chat_detect_stop_ids(c, t->tokenizer, &t->stop_ids, &t->n_stop_ids, err);
    free(c);
    return st;
}

/* Reads tokenizer, chat template and configurations from a directory. The caller frees *out, also after a failure. */
static ht_status load_text(const char *path, ht_mlx_text *out, ht_error *err) {
    if (!ht_path_exists(path)) return ht_fail(err, HT_ERR_IO, "%s: there is no such file or directory", path);
    if (!ht_path_is_directory(path))
        return ht_fail(err, HT_ERR_UNSUPPORTED,
                       "%s: mlx_lm loads directories of safetensors with config.json, and this is a file", path);
    const ht_checkpoint_files files = {.path = (char *)(uintptr_t)path};
    ht_status st = ht_chat_detect_tokenizer(&files, &out->tokenizer, err);
    if (!st && !out->tokenizer) out->no_tokenizer = ht_chat_detect_no_tokenizer(&files);
    if (!st && out->tokenizer) st = ht_chat_detect_template(out->tokenizer, &out->chat, err);
    return st ? st : read_configurations(path, out, err);
}

static void free_text(ht_mlx_text *t) {
    ht_tokenizer_free(t->tokenizer);
    ht_chat_setup_free(&t->chat);
    free(t->stop_ids);
    *t = (ht_mlx_text){0};
}

/* ---- loading ---- */

static ht_status refuse_option(const char *name, const char *why, ht_error *err) {
    return ht_fail(err, HT_ERR_UNSUPPORTED, "%s is not supported by " NAME ": %s", name, why);
}

/* mlx-lm chooses its device and precision itself. Options that would change them are rejected, not ignored. */
static ht_status check_model_options(const ht_model_options *given, ht_model_options *o, ht_error *err) {
    ht_model_options defaults;
    ht_model_options_init(&defaults, sizeof defaults);
    const ht_status st = ht_options_read(o, given, &defaults, sizeof defaults, "ht_model_options", err);
    if (st) return st;
    if (o->device) return refuse_option("device", "mlx chooses its own", err);
    if (o->precision != defaults.precision) return refuse_option("precision", "mlx has one of its own", err);
    if (o->sliding) return refuse_option("sliding", "its caches keep the first positions", err);
    if (o->slots > 1) return refuse_option("slots", "it computes one call at a time", err);
    if (o->kv_dtype != defaults.kv_dtype) return refuse_option("kv_dtype", "its caches have the model's dtype", err);
    if (o->packed_cache) return refuse_option("packed_cache", "it packs no weights", err);
    if (o->context < 0)
        return ht_fail(err, HT_ERR_ARGUMENT, "context is %lld, expected 0 or more", (long long)o->context);
    return HT_OK;
}

static ht_status check_text(const char *text, const char *what, ht_error *err) {
    if (ht_utf8_valid(text, strlen(text))) return HT_OK;
    return ht_fail(err, HT_ERR_UNSUPPORTED, "%s is no UTF-8, which " NAME " needs", what);
}

/* The adapter as the request has it; null without one. */
static ht_status adapter_json(const ht_backend_options *o, ht_json **out, ht_error *err) {
    *out = NULL;
    if (o->n_adapters > 1) return refuse_option("more than one adapter", "fuse them first", err);
    if (!o->n_adapters) {
        *out = ht_json_null();
        return HT_OK;
    }
    const float scale = o->adapter_scales ? o->adapter_scales[0] : 1;
    if (!isfinite(scale))
        return ht_fail(err, HT_ERR_ARGUMENT, "an adapter times %g, expected a finite number", (double)scale);
    if (!ht_path_is_directory(o->adapters[0]))
        return ht_fail(err, ht_path_exists(o->adapters[0]) ? HT_ERR_UNSUPPORTED : HT_ERR_IO,
                       "%s: " NAME " reads an adapter from a directory of its own format, and this is none; `hearth "
                       "adapter convert` writes one",
                       o->adapters[0]);
    const ht_status st = check_text(o->adapters[0], "the adapter's path", err);
    if (st) return st;
    *out = ht_json_pack("{ss sf}", "path", o->adapters[0], "scale", (double)scale);
    return *out ? HT_OK : ht_fail_memory(err, 0, "a request");
}

static ht_status start(ht_mlx_model *m, const ht_backend_options *o, ht_error *err) {
    const ht_child_options how = {.name = NAME,
                                  .program = o->python ? o->python : "python3",
                                  .script = o->bridge ? o->bridge : ht_mlx_bridge,
                                  .line_bytes = o->line_bytes};
    return ht_child_start(&how, &m->child, err);
}

/* Requests the load from the child; the response describes the loaded model. */
static ht_status ask(ht_mlx_model *m, const char *path, ht_json *adapter, const ht_backend_options *o,
                     const ht_model_options *with, ht_error *err) {
    ht_mlx_call c;
    ht_status st = ht_mlx_enter(m, with->cancel, &c, err);
    if (st) {
        ht_json_decref(adapter);
        return st;
    }
    const ht_child_wait wait = ht_mlx_wait(&c, o->load_seconds, "the model");
    st = ht_mlx_send(&c, "load", ht_json_pack("{ss so}", "path", path, "adapter", adapter), err);
    if (!st) st = ht_mlx_next(&c, &wait, HT_MLX_INFO, &m->loaded, err);
    ht_mlx_leave(&c);
    return st;
}

static ht_status set_context(ht_mlx_model *m, int64_t wanted, ht_error *err) {
    const int64_t own = m->loaded.info.context ? m->loaded.info.context : INT32_MAX;
    if (wanted > own)
        return ht_fail(err, HT_ERR_LIMIT, "context is %lld, and the model has %lld position%s", (long long)wanted,
                       (long long)own, ht_plural(own));
    m->context = wanted ? wanted : own;
    return HT_OK;
}

static void close_model(void *state) {
    ht_mlx_model *m = state;
    char *line = m->child ? ht_mlx_request_write(++m->last_id, "quit", ht_json_new_object()) : NULL;
    const ht_child_wait wait = ht_child_wait_for(0, "a place for a message", NULL);
    if (line) (void)ht_child_write(m->child, line, strlen(line), &wait, NULL);
    free(line);
    ht_child_end(m->child, m->loaded.kind ? quit_seconds : 0);
    ht_mlx_event_free(&m->loaded);
    free_text(&m->text);
    ht_turns_free(&m->turns);
    ht_calls_free(&m->calls);
    free(m);
}

static ht_status load_into(ht_mlx_model *m, const char *path, const ht_backend_options *o, ht_error *err) {
    ht_model_options with;
    ht_json *adapter = NULL;
    m->first_seconds = o->first_seconds;
    m->next_seconds = o->next_seconds;
    ht_status st = check_model_options(o->model, &with, err);
    if (!st) st = check_text(path, "the model's path", err);
    if (!st) st = load_text(path, &m->text, err);
    if (!st) st = adapter_json(o, &adapter, err);
    if (!st) st = start(m, o, err);
    if (st) {
        ht_json_decref(adapter);
        return st;
    }
    if (with.progress) with.progress(0, with.user);
    st = ask(m, path, adapter, o, &with, err);
    if (!st) st = set_context(m, with.context, err);
    if (!st && with.progress) with.progress(1, with.user);
    return st;
}

static ht_status load(const char *path, const ht_backend_options *o, void **state, ht_error *err) {
    *state = NULL;
    ht_mlx_model *m = calloc(1, sizeof *m);
    if (!m) return ht_fail_memory(err, sizeof *m, "a model");
    ht_calls_init(&m->calls);
    ht_turns_init(&m->turns);
    const ht_status st = load_into(m, path, o, err);
    if (st)
        close_model(m);
    else
        *state = m;
    return st;
}

/* ---- the rest of the table ---- */

static ht_status info(void *state, ht_backend_info *out, ht_error *err) {
    ht_mlx_model *m = state;
    ht_mlx_call c;
    ht_mlx_event e = {0};
    ht_status st = ht_mlx_enter(m, NULL, &c, err);
    if (st) return st;
    st = ht_mlx_send(&c, "info", ht_json_new_object(), err);
    if (!st) {
        const ht_child_wait wait = ht_mlx_wait(&c, m->next_seconds, "what the model is");
        st = ht_mlx_next(&c, &wait, HT_MLX_INFO, &e, err);
    }
    if (!st) {
        *out = m->loaded.info;
        out->chat_format = m->text.chat.name ? m->text.chat.name : "";
        out->context = m->context == INT32_MAX ? 0 : m->context;
        out->memory_bytes = e.info.memory_bytes;
    }
    ht_mlx_event_free(&e);
    ht_mlx_leave(&c);
    return st;
}

static void cancel(void *state) { ht_calls_cancel(&((ht_mlx_model *)state)->calls); }

const ht_backend ht_mlx_lm_backend = {.size = sizeof ht_mlx_lm_backend,
                                      .name = NAME,
                                      .summary = "mlx-lm in a Python process: Apple's GPU",
                                      .preference = 50,
                                      .load = load,
                                      .close = close_model,
                                      .generate = ht_mlx_generate,
                                      .chat = ht_mlx_chat,
                                      .info = info,
                                      .inspect = ht_mlx_inspect,
                                      .cancel = cancel};
