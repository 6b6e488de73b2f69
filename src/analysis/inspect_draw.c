/* Attention weights as SVG (ht_inspection_draw): a map of cells, token labels and a legend. All cells of a shade
 * share one path, which keeps documents small. Labels may hold any bytes, so invisible characters are escaped. */
#include "base/checked.h"
#include "base/error.h"
#include "base/plural.h"
#include "base/text.h"
#include "device/window.h"
#include "tokenizer/tokenizer.h"

#include <hearth/inspect.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_TOKENS = 2048,
    MAP_PIXELS = 960, /* approximate size of a large map; a cell has LEAST_CELL to MOST_CELL pixels */
    LEAST_CELL = 2,
    MOST_CELL = 20,
    FONT = 11,             /* pixels */
    LABEL_CHARACTERS = 20, /* maximum length of a token's label */
    SHADES = 48,
    MARGIN = 12,
    LEGEND_WIDTH = 240, /* of its bar */
    LEGEND_HEIGHT = 10,
    HEADING = 40 /* title and legend's space above it */
};

/* ---- characters ---- */

/* Characters that show nothing or change their neighbours: controls, separators, directions, noncharacters. */
static bool is_invisible(uint32_t c) {
    return c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0xAD || c == 0x61C || c == 0x180E ||
           (c >= 0x200B && c <= 0x200F) || (c >= 0x2028 && c <= 0x202E) || (c >= 0x2060 && c <= 0x206F) ||
           (c >= 0xD800 && c < 0xF900) || (c >= 0xFDD0 && c <= 0xFDEF) || c == 0xFEFF || (c >= 0xFE00 && c <= 0xFE0F) ||
           (c >= 0xFFF0 && c <= 0xFFFB) || (c & 0xFFFE) == 0xFFFE || c >= 0xE0000;
}

/* Appends the visible form of a character, escaped for SVG; returns the number of visible characters. */
static int put_visible(ht_text *out, uint32_t c) {
    static const struct {
        uint32_t c;
        const char *text;
    } others[] = {{'&', "&amp;"},         {'<', "&lt;"},         {'>', "&gt;"},
                  {'"', "&quot;"},        {' ', "\xE2\x90\xA3"}, /* U+2423, open box */
                  {'\n', "\xE2\x86\xB5"},                        /* U+21B5, the sign of the return key */
                  {'\t', "\xE2\x87\xA5"}};                       /* U+21E5, the sign of the tab key */
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (others[i].c == c) {
            ht_text_append_str(out, others[i].text);
            return 1;
        }
    if (!is_invisible(c) && c != 0xA0) {
        ht_text_append_utf8(out, c);
        return 1;
    }
    const size_t before = out->len;
    ht_text_printf(out, "\\u%04X", (unsigned)c);
    return (int)(out->len - before);
}

/* Appends a token's label, escaped for XML; returns its number of characters. */
static int put_label(ht_text *out, const char *bytes, size_t n) {
    int shown = 0;
    for (size_t at = 0, length; at < n; at += length) {
        uint32_t c;
        if (shown >= LABEL_CHARACTERS) {
            ht_text_append_utf8(out, 0x2026); /* an ellipsis */
            return shown + 1;
        }
        length = ht_utf8_decode(bytes + at, n - at, &c);
        if (ht_utf8_valid(bytes + at, length))
            shown += put_visible(out, c);
        else
            for (size_t i = 0; i < length; i++, shown += 4)
                ht_text_printf(out, "\\x%02X", (unsigned)(unsigned char)bytes[at + i]); /* invalid UTF-8 */
    }
    return shown;
}

/* ---- labels ---- */

typedef struct labels {
    char **text; /* [n] */
    int longest; /* characters */
} labels;

static void free_labels(labels *l, int64_t n) {
    for (int64_t i = 0; l->text && i < n; i++) free(l->text[i]);
    free(l->text);
}

static ht_status make_label(labels *l, int64_t i, int32_t id, const ht_tokenizer *t, ht_error *err) {
    ht_text label = {0};
    char *bytes = NULL;
    size_t n = 0;
    ht_status status = t && id < ht_tokenizer_vocab_size(t) ? ht_tokenizer_token_bytes(t, id, &bytes, &n, err) : HT_OK;
    if (status) return status;
    int shown = put_label(&label, bytes, n);
    if (!n) { /* no text: the token's id */
        ht_text_printf(&label, "#%d", (int)id);
        shown = (int)label.len;
    }
    free(bytes);
    if (shown > l->longest) l->longest = shown;
    l->text[i] = ht_text_take(&label);
    return l->text[i] ? HT_OK : ht_fail_memory(err, 1, "a label");
}

static ht_status make_labels(labels *l, const ht_inspection *i, const ht_tokenizer *t, ht_error *err) {
    l->text = calloc((size_t)i->n_tokens, sizeof *l->text);
    ht_status status = l->text ? HT_OK : ht_fail_memory(err, (size_t)i->n_tokens * sizeof *l->text, "labels");
    for (int64_t k = 0; k < i->n_tokens && !status; k++) status = make_label(l, k, i->tokens[k], t, err);
    return status;
}

/* ---- shades ---- */

/* Hexadecimal colour between near white and dark blue, even in lightness. */
static void colour(double share, char out[8]) {
    static const int stops[4][3] = {{243, 247, 253}, {147, 190, 226}, {45, 118, 184}, {6, 35, 82}};
    const double at = fmin(fmax(share, 0), 1) * 3;
    const int k = at < 3 ? (int)at : 2;
    const double rest = at - k;
    int c[3];
    for (int i = 0; i < 3; i++) c[i] = (int)lround(stops[k][i] + rest * (stops[k + 1][i] - stops[k][i]));
    snprintf(out, 8, "#%02x%02x%02x", (unsigned)c[0] & 255, (unsigned)c[1] & 255, (unsigned)c[2] & 255);
}

/* The square root separates small weights, which are the most frequent. -1: NaN. */
static signed char shade_of(float weight) {
    if (!(weight >= 0) || !isfinite(weight)) return -1;
    return (signed char)lround(sqrt(fmin((double)weight, 1)) * (SHADES - 1));
}

/* ---- the map ---- */

typedef struct map {
    signed char *shade; /* [n, n] */
    int64_t n;
    const ht_inspected_layer *layer;
    int cell, left, top; /* pixels */
} map;

/* Draws all cells of a shade and joins neighbours of a row. The lightest shade is the background. */
static void put_shade(ht_text *out, const map *m, int shade) {
    char fill[8] = "#d62728"; /* red: NaN */
    bool any = false;
    if (shade >= 0) colour((double)shade / (SHADES - 1), fill);
    for (int64_t row = 0; row < m->n; row++)
        for (int64_t at = ht_first_visible(m->layer->window, m->layer->chunked, row), end; at <= row; at = end) {
            const signed char *shades = m->shade + row * m->n;
            end = at + 1;
            if (shades[at] != shade) continue;
            while (end <= row && shades[end] == shade) end++;
            if (!any) ht_text_printf(out, "<path fill=\"%s\" d=\"", fill);
            any = true;
            ht_text_printf(out, "M%d %dh%dv1h-%dz", (int)at, (int)row, (int)(end - at), (int)(end - at));
        }
    if (any) ht_text_append_str(out, "\"/>\n");
}

static void put_map(ht_text *out, const map *m) {
    ht_text_printf(out, "<rect x=\"%d\" y=\"%d\" width=\"%lld\" height=\"%lld\" fill=\"#e4e4e4\"/>\n", m->left, m->top,
                   (long long)m->n * m->cell, (long long)m->n * m->cell);
    ht_text_printf(out, "<g transform=\"translate(%d %d) scale(%d)\" shape-rendering=\"crispEdges\">\n", m->left,
                   m->top, m->cell);
    for (int shade = -1; shade < SHADES; shade++) put_shade(out, m, shade);
    ht_text_append_str(out, "</g>\n");
}

/* Labels every step-th token, left of the rows and, rotated, above the columns. */
static void put_labels(ht_text *out, const map *m, const labels *l) {
    const int step = (FONT + m->cell - 1) / m->cell;
    ht_text_append_str(out, "<g text-anchor=\"end\">\n");
    for (int64_t k = 0; k < m->n; k += step)
        ht_text_printf(out, "<text x=\"%d\" y=\"%.1f\">%s</text>\n", m->left - 4,
                       m->top + ((double)k + 0.5) * m->cell + (double)FONT * 0.35, l->text[k]);
    ht_text_append_str(out, "</g>\n<g>\n");
    for (int64_t k = 0; k < m->n; k += step)
        ht_text_printf(out, "<text transform=\"translate(%.1f %d) rotate(-90)\">%s</text>\n",
                       m->left + ((double)k + 0.5) * m->cell + (double)FONT * 0.35, m->top - 4, l->text[k]);
    ht_text_append_str(out, "</g>\n");
}

static void put_legend(ht_text *out, int x, int y) {
    static const double ticks[] = {0, 0.01, 0.1, 0.25, 0.5, 1};
    for (int k = 0; k < SHADES; k++) {
        char fill[8];
        const double step = (double)LEGEND_WIDTH / (double)SHADES;
        colour((double)k / (SHADES - 1), fill);
        ht_text_printf(out, "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"%s\"/>\n", x + k * step, y,
                       step + 0.3, LEGEND_HEIGHT, fill);
    }
    for (size_t k = 0; k < sizeof ticks / sizeof *ticks; k++)
        ht_text_printf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%g</text>\n",
                       x + sqrt(ticks[k]) * (double)LEGEND_WIDTH, y + LEGEND_HEIGHT + FONT, ticks[k]);
    x += LEGEND_WIDTH + 24;
    ht_text_printf(out,
                   "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"#e4e4e4\"/>\n"
                   "<text x=\"%d\" y=\"%d\">masked</text>\n",
                   x, y, 2 * LEGEND_HEIGHT, LEGEND_HEIGHT, x + 2 * LEGEND_HEIGHT + 6, y + LEGEND_HEIGHT);
}

static void put_document(ht_text *out, map *m, const labels *l, int32_t layer, int32_t head) {
    const int label_room = (int)((double)FONT * 0.68 * l->longest) + 8, legend_room = LEGEND_HEIGHT + FONT + 14;
    m->left = MARGIN + label_room;
    m->top = HEADING + legend_room + label_room;
    const int least = 2 * MARGIN + LEGEND_WIDTH + 110; /* the legend */
    const int width = (int)ht_max_i64(m->left + m->n * m->cell + MARGIN, least);
    const int height = (int)(m->top + m->n * m->cell + MARGIN);
    ht_text_printf(out,
                   "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
                   "role=\"img\" aria-labelledby=\"t%d.%d d%d.%d\" font-family=\"sans-serif\" font-size=\"%d\">\n",
                   width, height, width, height, (int)layer, (int)head, (int)layer, (int)head, (int)FONT);
    ht_text_printf(
        out,
        "<title id=\"t%d.%d\">Attention weights of layer %d, head %d</title>\n"
        "<desc id=\"d%d.%d\">A map of %lld by %lld cells. A row is a token that attends, from the first "
        "at the top; a column a token that it attends to. Dark cells are large weights, and each row sums to "
        "1, or less in a head with an attention sink.</desc>\n<rect width=\"100%%\" height=\"100%%\" "
        "fill=\"#ffffff\"/>\n",
        (int)layer, (int)head, (int)layer, (int)head, (int)layer, (int)head, (long long)m->n, (long long)m->n);
    ht_text_printf(out, "<text x=\"%d\" y=\"%d\" font-size=\"14\">Layer %d, head %d</text>\n", (int)MARGIN, MARGIN + 14,
                   (int)layer, (int)head);
    put_legend(out, MARGIN + 4, HEADING);
    put_map(out, m);
    put_labels(out, m, l);
    ht_text_append_str(out, "</svg>\n");
}

static ht_status check(const ht_inspection *i, int32_t layer, int32_t head, ht_error *err) {
    if (layer < 0 || layer >= i->n_layers)
        return ht_fail(err, HT_ERR_ARGUMENT, "the model has no layer %d: its layers are 0 to %d", (int)layer,
                       (int)i->n_layers - 1);
    const ht_inspected_layer *l = &i->layers[layer];
    if (head < 0 || head >= l->n_heads)
        return ht_fail(err, HT_ERR_ARGUMENT, "layer %d has no head %d: its heads are 0 to %d", (int)layer, (int)head,
                       (int)l->n_heads - 1);
    if (!l->attention)
        return ht_fail(err, HT_ERR_ARGUMENT, "the inspection does not hold the attention weights of layer %d",
                       (int)layer);
    if (i->n_tokens > MOST_TOKENS)
        return ht_fail(err, HT_ERR_LIMIT, "a picture of %lld token%s: at most %d can be drawn", (long long)i->n_tokens,
                       ht_plural(i->n_tokens), (int)MOST_TOKENS);
    return HT_OK;
}

/* The SVG document of weights [n, n]; NULL when out of memory. */
static char *draw(const ht_inspection *i, int32_t layer, int32_t head, const labels *l) {
    const int64_t n = i->n_tokens;
    const float *weights = i->layers[layer].attention + head * n * n;
    map m = {.shade = malloc((size_t)(n * n)), .n = n, .layer = &i->layers[layer]};
    if (!m.shade) return NULL;
    for (int64_t k = 0; k < n * n; k++) m.shade[k] = shade_of(weights[k]);
    m.cell = (int)ht_max_i64(LEAST_CELL, ht_min_i64(MOST_CELL, MAP_PIXELS / n));
    ht_text out = {0};
    put_document(&out, &m, l, layer, head);
    free(m.shade);
    return ht_text_take(&out);
}

ht_status ht_inspection_draw(const ht_inspection *i, int32_t layer, int32_t head, const ht_tokenizer *t, char **svg,
                             ht_error *err) {
    labels of_tokens = {0};
    *svg = NULL;
    ht_status status = check(i, layer, head, err);
    if (status) return status;
    status = make_labels(&of_tokens, i, t, err);
    if (!status) *svg = draw(i, layer, head, &of_tokens);
    if (!status && !*svg) status = ht_fail_memory(err, (size_t)(i->n_tokens * i->n_tokens), "a picture");
    free_labels(&of_tokens, i->n_tokens);
    return status;
}
