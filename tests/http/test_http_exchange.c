/* Exchanges between threads: many threads write to streams, end them and let go of them while clients come, read and leave.
 *
 * The thread sanitizer runs it. Counts say that each owner was told at most once that its client had gone, and was freed once. */
#include "http/server.h"
#include "support/test.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CLIENTS = 6, WRITERS = 3 };

typedef struct owner {
    atomic_int gone, ended, writers;
} owner;

static http_server *server;
static atomic_int n_owners, n_freed, n_logged, n_bad, n_running;

static void on_gone(http_exchange *x, void *user) {
    owner *o = user;
    if (atomic_fetch_add(&o->gone, 1) != 0) atomic_fetch_add(&n_bad, 1);
    if (http_stream_line(x, "x", 1) != HTTP_GONE) atomic_fetch_add(&n_bad, 1);
}

static void on_free(void *user) {
    atomic_fetch_add(&n_freed, 1);
    free(user);
}

/* Several of them write to one stream; whoever is last ends it, or forgets to. */
static void *run_writer(void *user) {
    http_exchange *x = user;
    char path[8];
    snprintf(path, sizeof path, "%s", http_exchange_request(x)->head.path);
    for (int i = 0; i < 20; i++)
        if (http_stream_event(x, "piece", "one\ntwo", 7) == HTTP_GONE) break;
    if (strcmp(path, "/end") == 0) http_stream_end(x);
    http_exchange_release(x);
    atomic_fetch_sub(&n_running, 1);
    return NULL;
}

static void handle(http_exchange *x, void *user) {
    owner *o = calloc(1, sizeof *o);
    (void)user;
    if (!o) return;
    atomic_fetch_add(&n_owners, 1);
    http_exchange_own(x, &(http_owner){.gone = on_gone, .free = on_free, .user = o});
    if (http_stream_begin(x, &(http_stream_options){.alive_seconds = 15}) != HTTP_SENT) atomic_fetch_add(&n_bad, 1);
    for (int i = 0; i < WRITERS; i++) {
        pthread_t thread;
        http_exchange_retain(x);
        atomic_fetch_add(&n_running, 1);
        if (pthread_create(&thread, NULL, run_writer, x) == 0)
            pthread_detach(thread);
        else {
            http_exchange_release(x);
            atomic_fetch_sub(&n_running, 1);
        }
    }
}

static void finished(const http_record *record, void *user) {
    (void)user;
    if (record->status != 200 && record->status != 0) atomic_fetch_add(&n_bad, 1);
    atomic_fetch_add(&n_logged, 1);
}

static int connect_to_server(void) {
    struct sockaddr_in at = {.sin_family = AF_INET};
    const char *address = http_server_address(server, 0);
    at.sin_port = htons((uint16_t)strtol(strrchr(address, ':') + 1, NULL, 10));
    inet_pton(AF_INET, "127.0.0.1", &at.sin_addr);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&at, sizeof at) != 0) {
        if (fd >= 0) close(fd);
        return -1;
    }
    return fd;
}

/* Some read to the end, some a little, some nothing. */
static void *run_client(void *user) {
    const int rounds = *(int *)user;
    for (int i = 0; i < rounds; i++) {
        char bytes[4096];
        const char *path = i % 2 ? "/end" : "/left";
        const int n =
            snprintf(bytes, sizeof bytes, "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", path);
        const int fd = connect_to_server();
        if (fd < 0) break; /* the server has stopped */
        if (send(fd, bytes, (size_t)n, MSG_NOSIGNAL) == n) {
            ssize_t got = 1;
            if (i % 3 == 0)
                while (got > 0) got = recv(fd, bytes, sizeof bytes, 0);
            if (i % 3 == 1) got = recv(fd, bytes, 64, 0);
        }
        close(fd);
    }
    return NULL;
}

static void *run_server(void *user) {
    ht_error err = {0};
    if (http_server_run(server, &err) != HT_OK) *(bool *)user = true;
    return NULL;
}

/* `stop`: in the middle of it all. */
static void serve(int rounds, bool stop) {
    static const http_handlers handlers = {.handle = handle, .finished = finished};
    const http_server_options options = {.stream_bytes = 1024};
    pthread_t loop, client[CLIENTS];
    ht_error err = {0};
    bool failed = false;
    atomic_store(&n_owners, 0);
    atomic_store(&n_freed, 0);
    atomic_store(&n_logged, 0);
    assert_int_equal(http_server_new(&options, &handlers, &server, &err), HT_OK);
    assert_int_equal(http_server_listen(server, "127.0.0.1:0", &err), HT_OK);
    assert_int_equal(pthread_create(&loop, NULL, run_server, &failed), 0);
    for (int i = 0; i < CLIENTS; i++) assert_int_equal(pthread_create(&client[i], NULL, run_client, &rounds), 0);
    if (stop) {
        nanosleep(&(struct timespec){0, 50000000}, NULL);
        http_server_drain(server, 0);
    }
    for (int i = 0; i < CLIENTS; i++) pthread_join(client[i], NULL);
    http_server_drain(server, 30);
    pthread_join(loop, NULL);
    assert_false(failed);
    assert_int_equal(http_server_connections(server), 0);
    http_server_free(server); /* while writers may hold exchanges */
    while (atomic_load(&n_running)) nanosleep(&(struct timespec){0, 1000000}, NULL);
    assert_int_equal(atomic_load(&n_bad), 0);
    assert_int_equal(atomic_load(&n_freed), atomic_load(&n_owners));
    assert_int_equal(atomic_load(&n_logged), atomic_load(&n_owners));
    assert_true(stop || atomic_load(&n_owners) > 0);
}

static void test_many_threads(void **state) {
    (void)state;
    serve(test_cases(60, 6000), false);
}

static void test_stop_meanwhile(void **state) {
    (void)state;
    for (int i = 0; i < test_cases(5, 500); i++) serve(100000, true);
}

/* What never runs is freed as well. */
static void test_without_running(void **state) {
    (void)state;
    static const http_handlers handlers = {.handle = handle}, none;
    ht_error err = {0};
    http_server *s;
    assert_int_equal(http_server_new(NULL, &handlers, &s, &err), HT_OK);
    assert_int_equal(http_server_listen(s, "127.0.0.1:0", &err), HT_OK);
    assert_non_null(http_server_address(s, 0));
    assert_null(http_server_address(s, 1));
    http_server_free(s);
    assert_int_equal(http_server_new(NULL, &none, &s, &err), HT_ERR_ARGUMENT);
    assert_null(s);
    const http_server_options half = {.certificate = "/nonexistent"},
                              absent = {.certificate = "/nonexistent", .certificate_key = "/nonexistent"};
    assert_int_equal(http_server_new(&half, &handlers, &s, &err), HT_ERR_ARGUMENT);
    assert_int_equal(http_server_new(&absent, &handlers, &s, &err), HT_ERR_FORMAT);
    http_server_free(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_many_threads), cmocka_unit_test(test_stop_meanwhile),
                                       cmocka_unit_test(test_without_running)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
