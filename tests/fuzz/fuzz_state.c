/* State files, given to a session: as they are, or with the checksums that their sections need to be looked at. A state that is
 * taken has as many tokens as it says, and the session goes on from it; one that is refused leaves the session as it was. */
#include "files.h"
#include "generate/session_internal.h"
#include "generate/state_file.h"

#include <hearth/hearth.h>

#include <stdlib.h>
#include <string.h>

enum { KINDS = 3, HELD = 3 };

static ht_model *models[KINDS];
static char *origin[KINDS];

static ht_session *new_session(int kind) {
    ht_session *s;
    ht_error err = {0};
    check(ht_session_new(models[kind], NULL, &s, &err) == HT_OK);
    return s;
}

/* The models once, and what a state of theirs says of its origin. */
static void begin(const char *path) {
    static const char *const names[KINDS] = {"tests/golden/tiny/llama-q4_1.gguf", "tests/golden/tiny/gemma3-q5_1.gguf",
                                             "tests/golden/families/lfm2.gguf"};
    for (int k = 0; k < KINDS; k++) {
        ht_error err = {0};
        ht_state_file f;
        ht_model_options o;
        ht_model_options_init(&o, sizeof o);
        check(ht_model_load(names[k], &o, &models[k], &err) == HT_OK);
        ht_session *s = new_session(k);
        check(ht_session_save(s, path, &err) == HT_OK && ht_state_file_open(path, &f, &err) == HT_OK);
        check(ht_state_file_read_all(&f, ht_state_file_find(&f, HT_STATE_ORIGIN, 0), 1 << 16, &origin[k], &err) ==
              HT_OK);
        ht_state_file_close(&f);
        ht_session_free(s);
    }
}

/* Sections of the input, each a kind, an index and a length of 16 bits before its bytes; some get the origin that fits. */
static void write_sections(const char *path, int kind, const uint8_t *data, size_t size) {
    ht_state_writer *w;
    ht_error err = {0};
    uint32_t sections = 0;
    for (size_t at = 0; at + 4 <= size; at += 4 + ((size_t)data[at + 2] | (size_t)data[at + 3] << 8)) sections++;
    check(ht_state_writer_open(path, sections, &w, &err) == HT_OK);
    while (size >= 4) {
        size_t n = (size_t)data[2] | (size_t)data[3] << 8;
        const uint64_t what = data[0] % 7;
        check(ht_state_writer_begin(w, what, data[1], &err) == HT_OK);
        data += 4;
        size -= 4;
        n = n < size ? n : size;
        if (what == HT_STATE_ORIGIN) check(ht_state_writer_put(w, origin[kind], strlen(origin[kind]), &err) == HT_OK);
        if (n) check(ht_state_writer_put(w, data, n, &err) == HT_OK);
        data += n;
        size -= n;
    }
    check(ht_state_writer_commit(w, &err) == HT_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[128];
    static const int32_t ids[HELD] = {5, 6, 7};
    ht_error err = {0};
    snprintf(path, sizeof path, "%s/state", files_begin());
    if (!models[0]) begin(path);
    if (size == 0) return 0;
    const int kind = *data & 4 ? 2 : *data & 1;
    if (*data & 2)
        files_write("state", data + 1, size - 1);
    else
        write_sections(path, kind, data + 1, size - 1);
    ht_session *s = new_session(kind);
    check(ht_session_forward(s, ids, HELD, NULL, NULL, NULL, &err) == HT_OK);
    const ht_status status = ht_session_load(s, path, &err);
    if (status) check(err.status == status && err.message[0] && ht_session_length(s) == HELD);
    if (ht_session_length(s) < ht_model_context(models[kind]))
        check(ht_session_forward(s, ids, 1, NULL, NULL, NULL, &err) == HT_OK);
    ht_session_free(s);
    unlink(path);
    return 0;
}
