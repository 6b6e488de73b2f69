/* What `hearth pull` reads from a hub and a user: a listing, a name, an index of shards, and the head of an answer, with NUL between them.
 * No path leaves its directory, and what is chosen is in the listing. */
#include "fuzz.h"
#include "pull_hub.h"

#include <stdlib.h>
#include <string.h>

/* The bytes up to the next NUL, as a string of their own. */
static char *next(const uint8_t **data, size_t *size) {
    const uint8_t *end = *size ? memchr(*data, '\0', *size) : NULL;
    const size_t n = end ? (size_t)(end - *data) : *size;
    char *text = malloc(n + 1);
    check(text != NULL);
    if (n) memcpy(text, *data, n);
    text[n] = '\0';
    *data += n + (end != NULL);
    *size -= n + (end != NULL);
    return text;
}

static void check_path(const char *path) {
    check(*path && *path != '/' && !strchr(path, '\\') && !strchr(path, '\n'));
    for (const char *at = path; at; at = (at = strchr(at, '/')) ? at + 1 : NULL)
        check(*at && *at != '/' && strncmp(at, "../", 3) != 0 && strcmp(at, "..") != 0);
}

static void check_choice(const hub_listing *l, const pull_choice *c) {
    for (size_t i = 0; i < c->n; i++) {
        check(c->file[i] == hub_find(l, c->file[i]->path) && *c->file[i]->hash);
        for (size_t k = 0; k < i; k++) check(c->file[i] != c->file[k]);
    }
    check(c->n > 0);
}

static void choose(const hub_listing *l, const char *text, const char *index) {
    const hub h = {.repo = "org/repo"};
    pull_name name;
    pull_choice choice = {0};
    ht_error err = {0};
    if (pull_name_parse(text, "http://hub", &name, &err) == HT_OK) {
        const char *slash = strchr(name.repo, '/');
        check(slash && !strchr(slash + 1, '/'));
        check_path(name.repo);
        if (choose_files(&h, l, &name, &choice, &err) == HT_OK &&
            choose_shards(&h, l, index, strlen(index), &choice, &err) == HT_OK)
            check_choice(l, &choice);
    }
    choice_free(&choice);
    pull_name_free(&name);
}

static void read_head(const char *text) {
    http_answer answer = {.retry_after = -1};
    for (const char *end; *text; text = end) {
        end = text + strcspn(text, "\n");
        end += *end != '\0';
        http_header(&answer, text, (size_t)(end - text));
        check(answer.retry_after >= 0 || answer.retry_after == -1);
        check(strlen(answer.etag) < sizeof answer.etag && strlen(answer.next) < sizeof answer.next);
        check(!strchr(answer.etag, '\n') && !strchr(answer.etag, '\r'));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *listing = next(&data, &size), *name = next(&data, &size), *index = next(&data, &size),
         *head = next(&data, &size);
    hub_listing l = {0};
    ht_error err = {0};
    if (hub_listing_add(&l, "org/repo", listing, strlen(listing), &err) == HT_OK &&
        hub_listing_finish(&l, "org/repo", &err) == HT_OK) {
        for (size_t i = 0; i < l.n; i++) check_path(l.file[i].path);
        choose(&l, name, index);
    }
    read_head(head);
    hub_listing_free(&l);
    free(listing);
    free(name);
    free(index);
    free(head);
    return 0;
}
