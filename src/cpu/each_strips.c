/* Makes lists of steps (strips.h) from programs, and runs them (each_job.h). */
#include "cpu/each_job.h"
#include "device/params.h"

/* Where the operands and results of a list are: inputs and outputs as they lie, outputs that go round the caches while
 * other steps read them, and what is kept between steps. */
enum {
    INPUTS = 0,
    OUTPUTS = INPUTS + HT_PROGRAM_INPUTS,
    PASSING = OUTPUTS + HT_PROGRAM_OUTPUTS,
    LOCALS = PASSING + HT_PROGRAM_OUTPUTS,
    PLACES = LOCALS + HT_PROGRAM_LOCALS
};

/* ---- which programs ---- */

typedef enum form { NONE, OF_ONE, FUNCTION, EXP, OF_TWO, SCALED, COMPARED, CHOICE, CALLED } form;

/* How strips do a step, and with which code: OF_TWO, that of one operand twice; COMPARED, the first of three. */
static form form_of(const ht_program_step *s, ht_strip_code *code) {
    const bool called = ht_each_is_math(s->op) && (s->to == HT_F32 || s->to == HT_BOOL);
    if (s->from != HT_F32) return called ? CALLED : NONE;
    switch (s->op) {
#define ROW(id, as)                                                                                                    \
    case HT_OP_##id:                                                                                                   \
        *code = HT_STRIP_##id;                                                                                         \
        return as;
#define ONE(id, name)  ROW(id, OF_ONE)
#define LONG(id, name) ROW(id, FUNCTION)
#define TWO(id, name)                                                                                                  \
    case HT_OP_##id:                                                                                                   \
        *code = HT_STRIP_##id##_SELF;                                                                                  \
        return OF_TWO;
#define TRUTHS(id, name) ROW(id, COMPARED)
        HT_STRIP_OF_ONE(ONE)
        HT_STRIP_FUNCTION(LONG)
        HT_STRIP_OF_TWO(TWO)
        HT_STRIP_COMPARED(TRUTHS)
    case HT_OP_EXP: return EXP;
    case HT_OP_SCALE: return SCALED;
    case HT_OP_WHERE: return CHOICE;
    default: return called ? CALLED : NONE;
    }
}

/* Operations of few instructions lose by being called for each strip. Functions of many gain nothing by themselves. */
bool ht_each_takes_strips(const ht_program *p) {
    bool gains = false;
    for (int i = 0; i < p->n_steps; i++) {
        ht_strip_code code;
        const form f = form_of(&p->step[i], &code);
        if (f == NONE) return false;
        gains |= f != CALLED && ((f != FUNCTION && f != EXP) || p->n_steps > 1);
    }
    return gains;
}

/* ---- making a list ---- */

typedef struct maker {
    const each_job *j;
    each_strips *to;
    int numbers, truths;            /* the step whose result is there; -1: none is */
    bool is_read[HT_PROGRAM_STEPS]; /* from memory, what a step makes */
} maker;

static ht_strip_step *add(maker *m, ht_strip_code code) {
    ht_strip_step *s = &m->to->list[m->to->n++];
    *s = (ht_strip_step){.code = code};
    return s;
}

static int32_t bytes_of(ht_dtype t) { return HT_STRIP * (int32_t)ht_dtype_bytes(t); }

/* Where step i keeps what it makes, and from one strip to the next. */
static ht_strip_at at_kept(const maker *m, int i) {
    const ht_program_step *s = &m->j->p->step[i];
    const bool lies = s->out >= 0 && !each_passes(m->j, s->out);
    return (ht_strip_at){
        .place = (int8_t)(s->out < 0 ? LOCALS + s->local
                          : lies     ? OUTPUTS + s->out
                                     : PASSING + s->out),
        .bytes = lies ? bytes_of(s->to) : 0,
    };
}

/* Where an operand is. */
static ht_strip_at at_operand(maker *m, int id) {
    if (id < 0) {
        m->is_read[-1 - id] = true;
        return at_kept(m, -1 - id);
    }
    return (ht_strip_at){
        .place = (int8_t)(INPUTS + id),
        .bytes = each_is_still(m->j, id) ? 0 : HT_STRIP * (int32_t)m->j->in[id].bytes,
    };
}

static void add_at(maker *m, ht_strip_code code, ht_strip_at at) { add(m, code)->at[0] = at; }

static bool is_there(int id, int step) { return step >= 0 && id == -1 - step; }

/* The step that makes an operand; -1: none does. */
static int step_of(int id) { return id < 0 ? -1 - id : -1; }

/* ---- steps of few instructions ---- */

static ht_strip_step *last_step(maker *m) { return m->to->n > 0 ? &m->to->list[m->to->n - 1] : NULL; }

/* The last step, if it can do `what`, or store (NOTHING), too; or NULL. */
static ht_strip_step *last_with_room(maker *m, ht_strip_light what) {
    ht_strip_step *last = last_step(m);
    if (!last || (last->code != HT_STRIP_LIGHT && last->code != HT_STRIP_EXP) || last->store) return NULL;
    const bool is_first = last->code == HT_STRIP_LIGHT && !last->light[0];
    return !what || is_first || (!last->light[1] && what < HT_LIGHT_SECONDS) ? last : NULL;
}

static void load(maker *m, int id) {
    if (is_there(id, m->numbers)) return;
    ht_strip_step *s = add(m, HT_STRIP_LIGHT);
    s->loads = true;
    s->at[HT_AT_LOAD] = at_operand(m, id);
    m->numbers = step_of(id);
}

static void store(maker *m, ht_strip_store how, ht_strip_at at) {
    ht_strip_step *s = last_with_room(m, HT_LIGHT_NOTHING);
    if (!s) s = add(m, HT_STRIP_LIGHT);
    s->store = (uint8_t)how;
    s->at[HT_AT_STORE] = at;
}

static void add_light(maker *m, ht_strip_light what, ht_strip_at at, float value) {
    ht_strip_step *s = last_with_room(m, what);
    if (!s) s = add(m, HT_STRIP_LIGHT);
    const int k = s->light[0] || s->code == HT_STRIP_EXP ? 1 : 0;
    s->light[k] = (uint8_t)what;
    s->value[k] = value;
    s->at[HT_AT_FIRST + k] = at;
}

/* A step that does nothing but SCALE becomes a part of this one. */
static void add_exp(maker *m) {
    ht_strip_step *last = last_step(m);
    if (last && last->code == HT_STRIP_LIGHT && !last->loads && last->light[0] == HT_LIGHT_SCALE && !last->light[1] &&
        !last->store)
        last->code = HT_STRIP_EXP;
    else
        add(m, HT_STRIP_EXP);
}

/* An operation on the numbers and an operand, or with `to` on an operand and the numbers, as a part of a step. */
static ht_strip_light light_of(ht_op_id op, bool to) {
    switch (op) {
    case HT_OP_ADD: return HT_LIGHT_ADD;
    case HT_OP_SUBTRACT: return to ? HT_LIGHT_SUBTRACT_TO : HT_LIGHT_SUBTRACT;
    case HT_OP_MULTIPLY: return HT_LIGHT_MULTIPLY;
    case HT_OP_DIVIDE: return to ? HT_LIGHT_DIVIDE_TO : HT_LIGHT_DIVIDE;
    case HT_OP_MINIMUM: return to ? HT_LIGHT_MINIMUM_TO : HT_LIGHT_MINIMUM;
    default: return to ? HT_LIGHT_MAXIMUM_TO : HT_LIGHT_MAXIMUM;
    }
}

/* ---- operations ---- */

/* Of the first of three codes, the second takes the operands in the other order, and the third one operand twice. */
static void add_compared(maker *m, const ht_program_step *s, ht_strip_code code) {
    const bool to = is_there(s->in[1], m->numbers) && !is_there(s->in[0], m->numbers);
    if (!to) load(m, s->in[0]);
    if (s->in[0] == s->in[1])
        add(m, code + 2);
    else
        add_at(m, to ? code + 1 : code, at_operand(m, s->in[to ? 0 : 1]));
}

static void add_two(maker *m, const ht_program_step *s, ht_strip_code self) {
    const bool to = is_there(s->in[1], m->numbers) && !is_there(s->in[0], m->numbers);
    if (!to) load(m, s->in[0]);
    if (s->in[0] == s->in[1])
        add(m, self);
    else
        add_light(m, light_of(s->op, to), at_operand(m, s->in[to ? 0 : 1]), 0.0f);
}

static void add_choice(maker *m, const ht_program_step *s) {
    if (!is_there(s->in[0], m->truths)) add_at(m, HT_STRIP_LOAD_TRUTHS, at_operand(m, s->in[0]));
    m->truths = step_of(s->in[0]);
    if (!is_there(s->in[1], m->numbers)) {
        load(m, s->in[2]);
        add_at(m, HT_STRIP_ELSEWHERE, at_operand(m, s->in[1]));
    } else if (s->in[1] != s->in[2])
        add_at(m, HT_STRIP_WHERE, at_operand(m, s->in[2]));
}

static void add_call(maker *m, const ht_program_step *s, int i) {
    ht_strip_call *c = &m->to->call[i];
    *c = (ht_strip_call){.fn = (ht_each_fn *)s->kernel, .params = s->params, .n_in = s->n_in};
    for (int k = 0; k < s->n_in; k++) c->at[k] = at_operand(m, s->in[k]);
    ht_strip_step *step = add(m, HT_STRIP_CALL);
    step->call = c;
    step->at[0] = at_kept(m, i);
    if (!each_passes(m->j, s->out)) return;
    if (s->to == HT_BOOL) {
        add_at(m, HT_STRIP_LOAD_TRUTHS, at_kept(m, i));
        m->truths = i;
    } else
        load(m, -1 - i);
}

/* Step i, of what is in registers: round the caches, or to where it is kept if anything reads it there. */
static void add_stores(maker *m, const ht_program_step *s, int i, bool is_kept) {
    const bool truths = s->to == HT_BOOL, past = each_passes(m->j, s->out);
    if (past) {
        const ht_strip_at at = {.place = (int8_t)(OUTPUTS + s->out), .bytes = bytes_of(s->to)};
        if (truths)
            add_at(m, HT_STRIP_STORE_TRUTHS_PAST, at);
        else
            store(m, HT_STORE_PAST, at);
    }
    if (is_kept || !(m->is_read[i] || (s->out >= 0 && !past))) return;
    if (truths)
        add_at(m, HT_STRIP_STORE_TRUTHS, at_kept(m, i));
    else
        store(m, HT_STORE_THERE, at_kept(m, i));
}

static void add_step(maker *m, int i) {
    const ht_program_step *s = &m->j->p->step[i];
    ht_strip_code code = HT_STRIP_END;
    const form f = form_of(s, &code);
    switch (f) {
    case OF_ONE:
    case FUNCTION:
        load(m, s->in[0]);
        add(m, code);
        break;
    case EXP:
        load(m, s->in[0]);
        add_exp(m);
        break;
    case SCALED:
        load(m, s->in[0]);
        add_light(m, HT_LIGHT_SCALE, (ht_strip_at){0}, ((const ht_scale_params *)s->params)->value);
        break;
    case OF_TWO: add_two(m, s, code); break;
    case COMPARED: add_compared(m, s, code); break;
    case CHOICE: add_choice(m, s); break;
    default: add_call(m, s, i);
    }
    if (f == COMPARED)
        m->truths = i;
    else if (f != CALLED)
        m->numbers = i;
    add_stores(m, s, i, f == CALLED);
}

static void ask(maker *m, ht_strip_code code, int place, int64_t bytes, int64_t offset) {
    add_at(m, code, (ht_strip_at){.place = (int8_t)place, .bytes = (int32_t)(HT_STRIP * bytes), .offset = offset});
}

/* For strips to come, as far ahead as blocks are asked for, and of one operand once more behind that. */
static void add_asking(maker *m) {
    const each_job *j = m->j;
    const int64_t ahead = 2 * j->block;
    int n = 0, one = 0;
    for (int k = 0; k < j->p->n_in; k++) {
        if (j->in[k].how != WHOLE) continue;
        ask(m, HT_STRIP_ASK, INPUTS + k, j->in[k].bytes, ahead * j->in[k].bytes);
        one = k;
        n++;
    }
    if (n == 1 && j->asks_far)
        ask(m, HT_STRIP_ASK_FAR, INPUTS + one, j->in[one].bytes, ahead * j->in[one].bytes + EACH_FAR);
    for (int k = 0; k < j->p->n_out && !j->bypass; k++)
        ask(m, HT_STRIP_ASK, OUTPUTS + k, j->out_bytes[k], ahead * j->out_bytes[k]);
}

/* Rows can be as long as they are where nothing has to be gathered, and all results begin at a line that need to: then strips
 * do all but what is less than one, for which there is room. Pieces of a row begin at a line, too, as grains are whole lines. */
static bool takes_rows(const each_job *j) {
    const int last = j->n_dims - 1;
    if (!j->by_rows) return false;
    for (int k = 0; k < j->p->n_in; k++)
        if (j->in[k].how == BY_AXIS && j->in[k].stride[last] != 1 && !each_is_still(j, k)) return false;
    for (int k = 0; k < j->p->n_out; k++)
        if (each_passes(j, k) && ((uintptr_t)j->out[k] % 64 || j->shape[last] * j->out_bytes[k] % 64)) return false;
    return true;
}

void ht_each_lay_strips(each_job *j) {
    j->strips.n = 0;
    if (!j->p->strips || j->size < j->p->strips_least || j->tiles.count) return;
    maker m = {.j = j, .to = &j->strips};
    for (int pass = 0; pass < 2; pass++) { /* the first one finds what is read from memory */
        m.numbers = m.truths = -1;
        m.to->n = 0;
        if (j->asks) add_asking(&m);
        for (int i = 0; i < j->p->n_steps; i++) add_step(&m, i);
    }
    add(&m, HT_STRIP_END);
    j->strips.by_rows = takes_rows(j);
}

/* ---- running ---- */

int64_t ht_each_run_strips(const each_job *j, const void *const *input, int64_t at, int64_t n, each_room *r) {
    if (!j->strips.n || n < HT_STRIP) return 0;
    char *places[PLACES];
    for (int k = 0; k < j->p->n_in; k++) places[INPUTS + k] = (char *)(uintptr_t)input[k];
    for (int k = 0; k < j->p->n_out; k++) {
        places[OUTPUTS + k] = j->out[k] + at * j->out_bytes[k];
        places[PASSING + k] = r->bypassed[k];
        if (each_passes(j, k) && (uintptr_t)places[OUTPUTS + k] % 64) return 0;
    }
    for (int l = 0; l < HT_PROGRAM_LOCALS; l++) places[LOCALS + l] = r->local[l];
    ((ht_strips_fn *)j->p->strips)(j->strips.list, places, n / HT_STRIP);
    return n / HT_STRIP * HT_STRIP;
}
