/* Changes in a fixed order of cost: see training_fit.h. */
#include "sim/training_fit.h"

#include <stdio.h>
#include <string.h>

typedef struct {
  int32_t recompute, zero;   /* bits; levels */
  int32_t pp, ep, tp, micro; /* factors and a divisor; 0: as it is */
} change;

static const change changes[] = {
    {.recompute = HEC_RECOMPUTE_NORM | HEC_RECOMPUTE_ACT},
    {.recompute = HEC_RECOMPUTE_MOE},
    {.recompute = HEC_RECOMPUTE_FULL},
    {.zero = 1},
    {.zero = 2},
    {.pp = 2},
    {.ep = 2},
    {.tp = 2},
    {.micro = 2},
};
enum { N_CHANGES = sizeof changes / sizeof *changes };

/* False: there is nothing left to compute again. */
static bool apply_recompute(int32_t what, hec_recipe *r) {
  if (r->recompute & HEC_RECOMPUTE_FULL || (r->recompute & what) == what)
    return false;
  r->recompute = what == HEC_RECOMPUTE_FULL ? what : r->recompute | what;
  return true;
}

/* False: it changes nothing, or the job is not valid with it. */
static bool apply(const change *c, hec_training *t) {
  hec_layout *l = &t->layout;
  if (c->recompute && !apply_recompute(c->recompute, &t->recipe))
    return false;
  t->recipe.zero += c->zero;
  if (c->zero && t->recipe.zero > (l->pp > 1 ? 1 : 3))
    return false;
  if (c->micro && t->micro_batch % c->micro != 0)
    return false;
  t->micro_batch /= c->micro ? c->micro : 1;
  l->pp *= c->pp ? c->pp : 1;
  l->ep *= c->ep ? c->ep : 1;
  l->tp *= c->tp ? c->tp : 1;
  l->n_given = c->pp ? 0 : l->n_given;
  return hec_layout_fit(l, l->gpus, t->moe) == HEC_OK && hec_training_check(t) == HEC_OK;
}

/* The first word of `after` that `before` does not have at its place. */
static void first_difference(const char *before, const char *after, hec_training_fix *fix) {
  for (;; before += strcspn(before, " ") + 1, after += strcspn(after, " ") + 1) {
    size_t n = strcspn(after, " ");
    if (n == strcspn(before, " ") && strncmp(before, after, n) == 0 && after[n])
      continue;
    (void)snprintf(fix->change, sizeof fix->change, "%.*s", (int)n, after);
    return;
  }
}

static void name_change(const change *c, const hec_training *before, hec_training_fix *fix) {
  hec_text text[2] = {{0}, {0}};
  const hec_training *of[2] = {before, &fix->training};
  for (int i = 0; i < 2; i++)
    if (c->recompute || c->zero)
      hec_recipe_write(&of[i]->recipe, &text[i]);
    else
      hec_layout_write(&of[i]->layout, &text[i]);
  if (c->micro)
    (void)snprintf(fix->change, sizeof fix->change, "micro-batch %d", (int)fix->training.micro_batch);
  else
    first_difference(text[0].data, text[1].data, fix);
  hec_text_free(&text[0]);
  hec_text_free(&text[1]);
}

/* The largest share of a job's loads, everywhere. */
static const hec_layer_load *spread(const hec_training_job *job, const hec_training *t, hec_arena *arena) {
  int64_t n = (int64_t)t->moe->n_moe_layers * hec_training_micro_batches(t);
  int64_t n_known = (int64_t)t->moe->n_moe_layers * hec_training_micro_batches(job->training);
  hec_layer_load *loads = HEC_NEW(arena, hec_layer_load, n), max = {0};
  for (int64_t i = 0; i < n_known; i++)
    max.received = job->loads[i].received > max.received ? job->loads[i].received : max.received;
  for (int64_t i = 0; i < n; i++)
    loads[i] = max;
  return loads;
}

static bool try_change(const hec_training_job *job, const change *c, hec_arena *arena, hec_training_fix *fix) {
  hec_training_result result;
  hec_training_job changed = *job;
  *fix = (hec_training_fix){.training = *job->training};
  if (!apply(c, &fix->training))
    return false;
  changed.training = &fix->training;
  if (job->loads && !c->recompute && !c->zero)
    changed.loads = spread(job, &fix->training, arena);
  if (hec_training_run(&changed, &result) != HEC_OK)
    return false;
  fix->memory = result.memory;
  fix->step_s = result.step_s;
  fix->fits = result.memory.fits;
  name_change(c, job->training, fix);
  return true;
}

void hec_training_fix_find(const hec_training_job *job, hec_training_fix *fix) {
  hec_training_fix tried;
  HEC_SCOPED(hec_arena) arena = {0};
  *fix = (hec_training_fix){.training = *job->training};
  for (int i = 0; i < N_CHANGES && !fix->fits; i++)
    if (try_change(job, &changes[i], &arena, &tried) &&
        (tried.fits || !fix->change[0] || tried.memory.margin > fix->memory.margin))
      *fix = tried;
}

/* ---- As a sentence ---- */

static double needed_gib(const hec_training_memory *m) {
  return (m->reserved + m->outside) / 1073741824;
}

const double hec_training_tight = 0.05; /* this project's */
bool hec_training_fit_is_tight(const hec_training_memory *m) {
  return m->fits && m->margin < hec_training_tight * m->device_bytes;
}

void hec_training_fit_say(const hec_training_memory *m, const hec_training_fix *fix, const char *who, hec_text *text) {
  hec_text_printf(text, "%s %s: stage %d needs %.1f of %.1f GiB", who, m->fits ? "fits" : "does not fit",
                  (int)m->device, needed_gib(m), m->device_bytes / 1073741824);
  if (!m->fits && fix && fix->fits)
    hec_text_printf(text, "; %s would fit with %.1f GiB and take %.4g s", fix->change, needed_gib(&fix->memory),
                    fix->step_s);
  else if (!m->fits && fix && fix->change[0])
    hec_text_printf(text, "; no single change fits, %s comes nearest with %.1f GiB", fix->change,
                    needed_gib(&fix->memory));
  hec_text_add(text, hec_training_fit_is_tight(m) ? ", with less than 5 % to spare." : ".");
}
