/* Reading is one walk over the document. A prediction is a lowering and a simulation per step, and a walk
 * per control. Random
 * numbers are splitmix64. */
#include "validate/gate/gate_cases.h"

#include "runtime/base/arena.h"
#include "runtime/base/value.h"
#include "runtime/plan/problem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARMUP = 1, SKEW_MAX = 16, N_SHAPE = 4, WEIGHT_BITS = 24 };
static const char *const shape_key[N_SHAPE] = {"layers", "d_model", "d_ffn", "experts"};

/* ---- Loads ---- */

static double uniform(uint64_t *state) {
  uint64_t z = (*state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

static void draw_layer(uint64_t *state, int32_t skew, uint64_t assignments, int32_t layer, hec_load *load) {
  HEC_SCOPED(hec_arena) arena = {0};
  double *weight = HEC_NEW(&arena, double, load->n_experts);
  hec_load_remainder *order = HEC_NEW(&arena, hec_load_remainder, load->n_experts);
  for (int32_t e = 0; e < load->n_experts; e++) {
    double u = uniform(state);
    weight[e] = 1;
    for (int32_t k = 0; k < skew; k++)
      weight[e] *= u;
  }
  for (int32_t s = 0; s < load->n_sources; s++) {
    hec_load row = {1, 1, load->n_experts, hec_load_row(load, layer, s)};
    for (int32_t e = 0; e < load->n_experts; e++)
      row.counts[e] = 1 + (uint32_t)(weight[e] * (0.75 + 0.5 * uniform(state)) * (1 << WEIGHT_BITS));
    hec_load_scale(&row, assignments, order);
  }
}

void hec_gate_draw(uint64_t seed, int32_t skew, uint64_t assignments, hec_load *load) {
  uint64_t state = seed * 0x2545f4914f6cdd1du;
  for (int32_t l = 0; l < load->n_layers; l++)
    draw_layer(&state, skew, assignments, l, load);
}

/* ---- Cases ---- */

static hec_status make_case(hec_gate_file *f, int32_t index, hec_arena *arena) {
  const hec_gate_case *wish = &f->wanted[index];
  hec_moe moe = f->moe;
  hec_model *model = HEC_NEW(arena, hec_model, 1);
  hec_problem *problem = HEC_NEW(arena, hec_problem, 1);
  hec_replay_step *steps = HEC_NEW(arena, hec_replay_step, WARMUP + f->n_steps);
  int32_t n_ranks = f->links_cluster.n_devices;
  moe.top_k = wish->top_k;
  HEC_TRY(hec_model_make(&moe, false, 1, model));
  HEC_TRY(hec_problem_make(&model->moe, &f->links_cluster, false, n_ranks, wish->tokens, problem));
  problem->t = problem->m = problem->period = problem->slots = HEC_AUTO;
  for (int32_t i = 0; i < WARMUP + f->n_steps; i++) {
    hec_load *load = HEC_NEW(arena, hec_load, 1);
    *load = hec_load_new(arena, problem->n_layers, n_ranks, problem->n_experts);
    hec_gate_draw((uint64_t)index * 1000 + (uint64_t)i + 1, wish->skew, (uint64_t)wish->tokens * (uint64_t)wish->top_k,
                  load);
    steps[i] = (hec_replay_step){.iter = i, .stride = 1, .n_loads = 1, .loads = load};
  }
  hec_experiment_case *one = &f->cases[index];
  *one = (hec_experiment_case){.model = model,
                               .problem = problem,
                               .policy = hec_policy_find(wish->policy),
                               .schedule = "serial",
                               .steps = steps,
                               .n_steps = WARMUP + f->n_steps,
                               .n_micro_batches = 1,
                               .warmup = WARMUP};
  (void)snprintf(one->name, sizeof one->name, "%s, %d tokens, top-%d, skew %d", wish->policy, (int)wish->tokens,
                 (int)wish->top_k, (int)wish->skew);
  return HEC_OK;
}

/* ---- Reading ---- */

typedef struct {
  const hec_json *json;
  hec_gate_file *file;
  hec_arena *arena;
} reader;

static hec_status read_int(reader *r, const hec_json_value *object, const char *key, int32_t max, int32_t *out) {
  int64_t value;
  HEC_TRY(hec_json_want_int(r->json, object, key, 0, max, &value));
  *out = (int32_t)value;
  return HEC_OK;
}

static hec_status read_text(reader *r, const char *key, char **out) {
  const char *text;
  HEC_TRY(hec_json_want_text(r->json, hec_json_root(r->json), key, &text));
  *out = hec_arena_text(r->arena, text);
  return HEC_OK;
}

/* Seconds of one law, a step each, into every `stride`-th double. */
static hec_status read_steps(reader *r, const hec_json_value *list, double *to) {
  if (!list || !hec_json_is_array(list) || hec_json_length(list) != r->file->n_steps)
    return hec_json_error(r->json, list, "an array of seconds, one for each of \"steps\"");
  for (const hec_json_value *v = hec_json_first(list); v; v = hec_json_next(v)) {
    if (!hec_json_is_number(v) || !(hec_json_number(v) > 0))
      return hec_json_error(r->json, v, "seconds above 0");
    *to = hec_json_number(v);
    to += sizeof(hec_gate_prediction) / sizeof(double);
  }
  return HEC_OK;
}

/* All laws of a case; a case without "predicted_s" has none yet. */
static hec_status read_stored(reader *r, const hec_json_value *v, hec_gate_prediction *to) {
  const hec_json_value *list = hec_json_get(v, "predicted_s"), *controls = hec_json_get(v, "control_s");
  if (!list)
    return HEC_OK;
  HEC_TRY(read_steps(r, list, &to->predicted_s));
  const hec_json_value *trained = hec_json_get(v, "trained_s");
  if (!trained)
    return hec_json_error(r->json, v, "\"trained_s\" beside \"predicted_s\"");
  HEC_TRY(read_steps(r, trained, &to->trained_s));
  for (int32_t k = 0; hec_controls[k].name; k++) {
    const hec_json_value *one = controls ? hec_json_get(controls, hec_controls[k].name) : NULL;
    if (!one)
      return hec_json_error(r->json, v, "\"control_s\" with every control beside \"predicted_s\"");
    HEC_TRY(read_steps(r, one, &to->control_s[k]));
  }
  return HEC_OK;
}

static hec_status read_case(reader *r, const hec_json_value *v, int32_t index) {
  static const char *const known[] = {"policy",      "tokens",    "top_k",     "skew",
                                      "predicted_s", "control_s", "trained_s", NULL};
  hec_gate_case *c = &r->file->wanted[index];
  const char *policy;
  HEC_TRY(hec_json_only(r->json, v, known));
  HEC_TRY(hec_json_want_text(r->json, v, "policy", &policy));
  if (!hec_policy_find(policy))
    return hec_json_error(r->json, hec_json_get(v, "policy"), "the name of a policy");
  c->policy = hec_policy_find(policy)->name;
  HEC_TRY(read_int(r, v, "tokens", r->file->tokens, &c->tokens));
  HEC_TRY(read_int(r, v, "top_k", r->file->moe.n_experts, &c->top_k));
  HEC_TRY(read_int(r, v, "skew", SKEW_MAX, &c->skew));
  if (c->tokens < 1 || c->top_k < 1)
    return hec_json_error(r->json, v, "1 token and top-1 or more");
  HEC_TRY(read_stored(r, v, &r->file->stored[index * r->file->n_steps]));
  return make_case(r->file, index, r->arena);
}

static hec_status read_shape(reader *r, const hec_json_value *root) {
  hec_gate_file *f = r->file;
  const hec_json_value *shape = hec_json_get(root, "shape");
  if (!shape)
    return hec_json_error(r->json, root, "a \"shape\"");
  HEC_TRY(read_text(r, "model", &f->model));
  HEC_TRY(hec_moe_load(f->model, &f->moe));
  for (int32_t i = 0; i < N_SHAPE; i++)
    HEC_TRY(read_int(r, shape, shape_key[i], 1 << 20, &f->shape[i]));
  f->moe.n_layers = f->moe.n_moe_layers = f->shape[0];
  f->moe.d_model = f->shape[1];
  f->moe.d_ffn = f->moe.d_ffn_dense = f->moe.d_ffn_shared = f->shape[2];
  f->moe.n_experts = f->shape[3];
  f->moe.d_head = f->moe.d_model / f->moe.n_heads;
  HEC_TRY(hec_moe_check(&f->moe, f->model));
  f->model_made = HEC_NEW(r->arena, hec_model, 1);
  return hec_model_make(&f->moe, false, 1, f->model_made);
}

/* `path`: of the file that names the cluster, beside which it lies. */
static hec_status read_clusters(reader *r, const char *path) {
  const char *slash = strrchr(path, '/');
  HEC_SCOPED(hec_text) beside = {0};
  HEC_TRY(read_text(r, "links", &r->file->links));
  HEC_TRY(read_text(r, "cluster", &r->file->cluster_name));
  HEC_TRY(hec_cluster_parse_line(r->file->links, r->arena, &r->file->links_cluster));
  hec_text_printf(&beside, "%.*s%s", slash ? (int)(slash + 1 - path) : 0, path, r->file->cluster_name);
  char *kept = HEC_NEW(r->arena, char, beside.length + 1);
  memcpy(kept, beside.data, beside.length + 1);
  r->file->cluster_path = kept;
  hec_status status = hec_cluster_read(kept, r->arena, &r->file->cluster);
  if (status == HEC_OK && r->file->cluster.n_devices != r->file->links_cluster.n_devices)
    return hec_json_error(r->json, hec_json_get(hec_json_root(r->json), "cluster"), "as many devices as \"links\" has");
  return status;
}

static hec_status read_bands(reader *r, const hec_json_value *root) {
  const hec_json_value *v = hec_json_get(root, "bands");
  hec_gate_bands *b = &r->file->bands;
  if (!v)
    return hec_json_error(r->json, root, "\"bands\"");
  HEC_TRY(hec_json_want_double(r->json, v, "median", 0, 1, &b->median));
  HEC_TRY(hec_json_want_double(r->json, v, "p90", 0, 1, &b->p90));
  HEC_TRY(hec_json_want_double(r->json, v, "order", 0, 1, &b->order));
  HEC_TRY(hec_json_want_double(r->json, v, "changed", 0, 1, &b->changed));
  return hec_json_want_int(r->json, v, "points", 1, 1000, &b->points);
}

static hec_status read_document(reader *r, const char *path) {
  static const char *const known[] = {"version", "model", "shape", "links", "cluster",
                                      "tokens",  "steps", "bands", "cases", NULL};
  const hec_json_value *root = hec_json_root(r->json), *list = hec_json_get(root, "cases");
  hec_gate_file *f = r->file;
  int32_t version;
  HEC_TRY(hec_json_only(r->json, root, known));
  HEC_TRY(read_int(r, root, "version", 1, &version));
  HEC_TRY(read_text(r, "notes", &f->notes));
  HEC_TRY(read_shape(r, root));
  HEC_TRY(read_clusters(r, path));
  HEC_TRY(read_int(r, root, "tokens", 1 << 20, &f->tokens));
  HEC_TRY(read_int(r, root, "steps", 1000, &f->n_steps));
  HEC_TRY(read_bands(r, root));
  if (!list || !hec_json_is_array(list) || hec_json_length(list) == 0 || f->n_steps < 1)
    return hec_json_error(r->json, root, "\"cases\" and 1 step or more");
  f->n_cases = hec_json_length(list);
  f->wanted = HEC_NEW(r->arena, hec_gate_case, f->n_cases);
  f->cases = HEC_NEW(r->arena, hec_experiment_case, f->n_cases);
  f->stored = HEC_NEW(r->arena, hec_gate_prediction, f->n_cases * f->n_steps);
  int32_t index = 0;
  for (const hec_json_value *v = hec_json_first(list); v; v = hec_json_next(v))
    HEC_TRY(read_case(r, v, index++));
  return HEC_OK;
}

hec_status hec_gate_read(const char *path, hec_arena *arena, hec_gate_file *file) {
  HEC_OPENED(hec_json) *json = NULL;
  *file = (hec_gate_file){0};
  HEC_TRY(hec_json_read(path, &json));
  reader r = {json, file, arena};
  return read_document(&r, path);
}

/* ---- Writing ---- */

static void write_steps(hec_json_out *json, const char *key, const hec_gate_file *f, const double *from) {
  hec_json_array(json, key);
  for (int32_t i = 0; i < f->n_steps; i++)
    hec_json_double(json, NULL, from[(size_t)i * sizeof(hec_gate_prediction) / sizeof(double)]);
  hec_json_close(json);
}

static void write_case(hec_json_out *json, const hec_gate_file *f, int32_t index, const hec_gate_prediction *p) {
  const hec_gate_case *c = &f->wanted[index];
  hec_json_object(json, NULL);
  HEC_JSON(json, HEC_TEXT("policy", c->policy), HEC_INT("tokens", c->tokens), HEC_INT("top_k", c->top_k),
           HEC_INT("skew", c->skew));
  write_steps(json, "predicted_s", f, &p->predicted_s);
  hec_json_object(json, "control_s");
  for (int32_t k = 0; hec_controls[k].name; k++)
    write_steps(json, hec_controls[k].name, f, &p->control_s[k]);
  hec_json_close(json);
  write_steps(json, "trained_s", f, &p->trained_s);
  hec_json_close(json);
}

static void write_head(hec_json_out *json, const hec_gate_file *f) {
  HEC_JSON(json, HEC_INT("version", 1), HEC_TEXT("notes", f->notes), HEC_TEXT("model", f->model));
  hec_json_object(json, "shape");
  for (int32_t i = 0; i < N_SHAPE; i++)
    hec_json_int(json, shape_key[i], f->shape[i]);
  hec_json_close(json);
  HEC_JSON(json, HEC_TEXT("links", f->links), HEC_TEXT("cluster", f->cluster_name), HEC_INT("tokens", f->tokens),
           HEC_INT("steps", f->n_steps),
           HEC_OBJECT("bands", HEC_REAL("median", f->bands.median), HEC_REAL("p90", f->bands.p90),
                      HEC_REAL("order", f->bands.order), HEC_REAL("changed", f->bands.changed),
                      HEC_INT("points", f->bands.points)));
}

void hec_gate_write(const hec_gate_file *f, const hec_gate_prediction *predictions, hec_text *out) {
  hec_json_out json = hec_json_begin(out, 1);
  hec_json_object(&json, NULL);
  write_head(&json, f);
  hec_json_array(&json, "cases");
  for (int32_t i = 0; i < f->n_cases; i++)
    write_case(&json, f, i, &predictions[i * f->n_steps]);
  hec_json_close(&json);
  hec_json_close(&json);
}

/* ---- Predicting ---- */

/* A way in which a case runs: as it is measured, or training under the policy's own schedule. */
typedef struct {
  const hec_gate_file *file;
  const hec_experiment_case *of;
  bool train;
  const char *schedule;
  hec_problem problem;
  hec_link_cost cost;
  hec_program broken;
} prediction;

static void predict_step(prediction *p, const hec_program *program, double seconds, hec_gate_prediction *to) {
  if (p->train) {
    to->trained_s = seconds;
    return;
  }
  to->predicted_s = seconds;
  for (int32_t k = 0; hec_controls[k].name; k++)
    to->control_s[k] = hec_control_predict(&hec_controls[k], &p->problem, program, &p->cost, &p->broken);
}

static hec_status predict_case(prediction *p, hec_arena *arena, hec_gate_prediction *to) {
  const hec_experiment_case *of = p->of;
  const hec_schedule *schedule;
  const hec_problem *as = of->problem;
  HEC_SCOPED(hec_timeline) timeline = {0};
  HEC_TRY(hec_schedule_of(of->policy, p->schedule, &schedule));
  HEC_TRY(hec_problem_make(as->moe, &p->file->cluster, p->train, as->n_ranks, as->tokens, &p->problem));
  p->problem.t = p->problem.m = p->problem.period = p->problem.slots = HEC_AUTO;
  HEC_OPENED(hec_lowering) *low = hec_lowering_new(&p->problem, of->policy, schedule, NULL, arena);
  HEC_OPENED(hec_sim) *sim = hec_sim_new(&p->problem, &hec_law_alpha_beta, arena);
  p->cost = hec_link_cost_new(p->problem.cluster, arena);
  for (int32_t i = 0; i < of->n_steps; i++) {
    hec_lower_iteration(low, of->steps[i].iter, of->steps[i].loads, of->steps[i].n_loads, of->n_micro_batches);
    if (i < of->warmup)
      continue;
    hec_sim_run(sim, hec_lowering_program(low), (hec_sim_options){0}, &timeline);
    predict_step(p, hec_lowering_program(low), 1e-12 * (double)hec_timeline_end_ps(&timeline), to++);
  }
  free(p->broken.transfers);
  hec_link_cost_free(&p->cost);
  return HEC_OK;
}

hec_status hec_gate_predict(const hec_gate_file *f, hec_gate_prediction *predictions) {
  hec_status status = HEC_OK;
  for (int32_t i = 0; status == HEC_OK && i < 2 * f->n_cases; i++) {
    HEC_SCOPED(hec_arena) arena = {0};
    bool train = i % 2 == 1;
    prediction p = {.file = f, .of = &f->cases[i / 2], .train = train};
    p.schedule = train ? "published" : p.of->schedule;
    status = predict_case(&p, &arena, &predictions[i / 2 * f->n_steps]);
  }
  return status;
}
