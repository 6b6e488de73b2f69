/* TLS of the server: its certificate and key, the versions and the protocol that it offers. */
#include "http/error.h"
#include "http/internal.h"

#include <openssl/err.h>
#include <string.h>

static ht_status fail_tls(ht_error *err, const char *path, const char *what) {
    char reason[160];
    ERR_error_string_n(ERR_peek_last_error(), reason, sizeof reason);
    ERR_clear_error();
    return http_fail(err, HT_ERR_FORMAT, "%.400s cannot be used as the %s of TLS, a PEM file: %s", path, what, reason);
}

/* Selects HTTP/1.1 if a client offers it by ALPN, and no protocol if it offers only others. */
static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *n_out, const unsigned char *in,
                           unsigned n_in, void *user) {
    static const unsigned char spoken[] = "\x08http/1.1";
    (void)ssl;
    (void)user;
    unsigned char *chosen;
    if (SSL_select_next_proto(&chosen, n_out, spoken, sizeof spoken - 1, in, n_in) != OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_NOACK;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

static ht_status load(SSL_CTX *tls, const http_server_options *o, ht_error *err) {
    SSL_CTX_set_options(tls, SSL_OP_NO_RENEGOTIATION | SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_mode(tls, SSL_MODE_RELEASE_BUFFERS); /* idle connections keep none */
    SSL_CTX_set_alpn_select_cb(tls, choose_protocol, NULL);
    if (SSL_CTX_set_min_proto_version(tls, TLS1_2_VERSION) != 1)
        return fail_tls(err, o->certificate, "certificate, with TLS 1.2,");
    if (SSL_CTX_use_certificate_chain_file(tls, o->certificate) != 1)
        return fail_tls(err, o->certificate, "certificate");
    if (SSL_CTX_use_PrivateKey_file(tls, o->certificate_key, SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_check_private_key(tls) != 1)
        return fail_tls(err, o->certificate_key, "certificate's key");
    return HT_OK;
}

ht_status http_tls_load(const http_server_options *o, SSL_CTX **out, ht_error *err) {
    *out = NULL;
    if (!o->certificate != !o->certificate_key)
        return http_fail(err, HT_ERR_ARGUMENT, "TLS needs both the file of a certificate and the file of its key");
    if (!o->certificate) return HT_OK;
    ERR_clear_error();
    SSL_CTX *tls = SSL_CTX_new(TLS_server_method());
    if (!tls) return http_fail_memory(err, "TLS");
    const ht_status st = load(tls, o, err);
    if (st)
        SSL_CTX_free(tls);
    else
        *out = tls;
    return st;
}

void http_tls_finish(SSL *ssl) {
    if (SSL_is_init_finished(ssl)) SSL_shutdown(ssl);
    ERR_clear_error();
}
