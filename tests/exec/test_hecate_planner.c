/* The planner of the public interface, driven beside the internal policy run over random loads. Equal digests for every
 * policy; moves, guests and splits are what the plan says. No memory is taken between open and close. Mistakes: a code
 * and a message, nothing else. */
#include "runtime/plan/policy.h"
#include "tests/exec/public_case.h"
#include "tests/support/random_problem.h"

#include <string.h>

/* ---- Planner ---- */

static const char *const machines[] = {"1x8 nvlink=300G@2us flops=312T mem=40G",
                                       "2x4 nvlink=300G@2us nic=50G@5us flops=312T mem=40G",
                                       "4x2 nvlink=100G@1us nic=12G@5us flops=100T mem=32G"};

static hec_planner_options random_options(void) {
  hec_planner_options o = hec_planner_defaults();
  o.cluster = machines[below(3)];
  o.n_ranks = 1 + below(8);
  o.n_layers = 1 + below(4);
  o.n_experts = 1 + below(20);
  o.top_k = 1 + below(o.n_experts < 4 ? o.n_experts : 4);
  o.d_model = 64 * (1 + below(8));
  o.d_ffn = 64 * (1 + below(8));
  o.n_matrices = 2 + below(2);
  o.tokens = 1 + below(2000);
  o.n_heads = 4;
  o.forward_only = below(4) == 0;
  o.period = 1 + below(3);
  o.t = below(3) ? below(o.n_experts + 1) : HECATE_AUTO;
  o.m = below(3) ? below(4) % (o.n_experts + 1) : HECATE_AUTO;
  o.window_s = below(2) ? 1e-4 : 0;
  return o;
}

/* The same problem, made the internal way. */
typedef struct {
  hec_arena arena;
  hec_moe moe;
  hec_cluster cluster;
  hec_problem problem;
  hec_load load;
  hec_policy_run run;
  hec_routing routing;
} inside;

static void open_inside(inside *in, const hec_planner_options *o) {
  *in = (inside){0};
  in->moe = (hec_moe){.name = "test",
                      .n_layers = o->n_layers,
                      .n_moe_layers = o->n_layers,
                      .d_model = o->d_model,
                      .d_ffn = o->d_ffn,
                      .n_ffn_matrices = o->n_matrices,
                      .n_experts = o->n_experts,
                      .top_k = o->top_k,
                      .n_heads = 4,
                      .n_kv_heads = 4,
                      .d_head = o->d_model / 4,
                      .seq_len = 2048,
                      .tokens_per_rank = o->tokens,
                      .micro_batches = 1,
                      .dtype_bytes = 2,
                      .grad_bytes = 2,
                      .optimizer_bytes = 12,
                      .attention = HEC_ATTENTION_CAUSAL,
                      .fused_attention = true,
                      .nonmoe_scale = 1};
  OK((int)hec_cluster_load(o->cluster, &in->arena, &in->cluster));
  OK((int)hec_problem_make(&in->moe, &in->cluster, !o->forward_only, o->n_ranks, o->tokens, &in->problem));
  in->problem.t = o->t;
  in->problem.m = o->m;
  in->problem.period = o->period;
  if (o->window_s > 0)
    in->problem.window_s = o->window_s;
  in->load = hec_load_new(&in->arena, o->n_layers, o->n_ranks, o->n_experts);
  in->routing = hec_routing_new(&in->arena, &in->problem);
  in->run = hec_policy_start(hec_policy_find(o->policy), &in->problem, &in->arena);
}

static void close_inside(inside *in) {
  hec_policy_stop(&in->run);
  hec_arena_free(&in->arena);
}

static void random_load(hec_load *load) {
  for (int32_t l = 0; l < load->n_layers; l++)
    for (int32_t s = 0, hot = below(load->n_experts); s < load->n_sources; s++)
      for (int32_t e = 0; e < load->n_experts; e++)
        hec_load_row(load, l, s)[e] = below(4) ? (uint32_t)below(e == hot ? 900 : 60) : 0;
}

/* Where parameters and optimizer state are: bit 0 and 1 of has[layer][expert][slice][rank]. */
static uint8_t *state_at(uint8_t *has, const hec_plan_view *v, int32_t l, int32_t e, int32_t part, int32_t r) {
  return has +
         (((size_t)l * (size_t)v->n_experts + (size_t)e) * (size_t)v->n_slices + (size_t)part) * (size_t)v->n_ranks + r;
}

static void each_copy(const hec_plan_view *v, int32_t l, int32_t e, int32_t *first, int32_t *end) {
  const int32_t *at = v->copy_at + (size_t)l * (size_t)(v->n_experts + 1) + e;
  *first = l * v->copy_capacity + at[0];
  *end = l * v->copy_capacity + at[1];
}

/* has = what the plan keeps. check: it must have been there already. */
static void keep(uint8_t *has, const hec_plan_view *v, bool check, bool train) {
  uint8_t all = train ? 3 : 1;
  size_t cells = (size_t)v->n_layers * (size_t)v->n_experts * (size_t)v->n_slices * (size_t)v->n_ranks;
  uint8_t *wanted = calloc(cells, 1);
  for (int32_t l = 0; l < v->n_layers; l++)
    for (int32_t e = 0; e < v->n_experts; e++) {
      int32_t first, end;
      for (int32_t part = 0; part < v->n_slices; part++)
        *state_at(wanted, v, l, e, part, v->home[(l * v->n_experts + e) * v->n_slices + part]) = all;
      each_copy(v, l, e, &first, &end);
      for (int32_t i = first; i < end; i++)
        if (v->copy_kind[i] == HECATE_RESIDENT)
          *state_at(wanted, v, l, e, 0, v->copy_rank[i]) = all;
    }
  for (size_t i = 0; check && i < cells; i++)
    ck_assert_msg((wanted[i] & ~has[i]) == 0, "something that the plan keeps was not moved there");
  memcpy(has, wanted, cells);
  free(wanted);
}

static void apply_moves(const hec_planner *planner, const hec_plan_view *v, uint8_t *has) {
  size_t n;
  const hec_planner_move *move = hec_planner_moves(planner, &n);
  for (size_t i = 0; i < n; i++) {
    uint8_t bit = move[i].state == HECATE_PARAM ? 1 : 2;
    ck_assert(move[i].state == HECATE_PARAM || move[i].state == HECATE_OPTIMIZER);
    ck_assert(*state_at(has, v, move[i].layer, move[i].expert, move[i].part, move[i].source) & bit);
    *state_at(has, v, move[i].layer, move[i].expert, move[i].part, move[i].destination) |= bit;
  }
}

/* The rank is the expert's home or has a resident copy. */
static bool keeps(const hec_plan_view *v, int32_t l, int32_t e, int32_t rank) {
  int32_t first, end;
  bool found = v->home[l * v->n_experts + e] == rank;
  each_copy(v, l, e, &first, &end);
  for (int32_t i = first; i < end; i++)
    found = found || (v->copy_rank[i] == rank && v->copy_kind[i] == HECATE_RESIDENT);
  return found;
}

/* Each guest of the layer in items of `which` counted once into count[expert][rank]. */
static void count_guests(hec_planner *planner, const hec_plan_view *v, int32_t l, int32_t which, uint8_t *count) {
  hec_sparse_items items;
  OK(hec_planner_guests(planner, l, which, &items));
  memset(count, 0, (size_t)v->n_experts * (size_t)v->n_ranks);
  for (int32_t i = 0; i < items.n_items; i++) {
    ck_assert(keeps(v, l, items.expert[i], items.owner[i]));
    for (int32_t k = items.receiver_at[i]; k < items.receiver_at[i + 1]; k++)
      count[items.expert[i] * v->n_ranks + items.receiver[k]]++;
  }
}

static void check_guests(hec_planner *planner, const hec_plan_view *v, int32_t l) {
  uint8_t count[3][20 * 8], guest[20 * 8] = {0};
  for (int32_t which = HECATE_BEFORE; which <= HECATE_ALL; which++)
    count_guests(planner, v, l, which, count[which]);
  for (int32_t e = 0; e < v->n_experts; e++) {
    int32_t first, end;
    each_copy(v, l, e, &first, &end);
    for (int32_t i = first; i < end; i++)
      if (v->copy_kind[i] == HECATE_GUEST && v->copy_rank[i] != v->home[l * v->n_experts + e])
        guest[e * v->n_ranks + v->copy_rank[i]] = 1;
  }
  for (int32_t i = 0; i < v->n_experts * v->n_ranks; i++) {
    ck_assert_int_eq(count[HECATE_ALL][i], guest[i]);
    ck_assert_int_eq(count[HECATE_BEFORE][i] + count[HECATE_ADDED][i], guest[i]);
  }
}

static void check_split(hec_planner *planner, inside *in, int32_t l) {
  int32_t ranks[8], n, own_ranks[8 + 20 * 8], own_n;
  uint32_t tokens[8], own_tokens[8 + 20 * 8];
  for (int32_t s = 0; s < in->problem.n_ranks; s++)
    for (int32_t e = 0; e < in->problem.n_experts; e++) {
      OK(hec_planner_split(planner, l, s, e, ranks, tokens, &n));
      own_n = hec_routing_split(&in->routing, in->run.policy->dispatch, &in->problem, &in->run.plan, &in->load, l, s, e,
                                own_ranks, own_tokens);
      ck_assert_int_eq(n, own_n);
      uint64_t sum = 0;
      for (int32_t i = 0; i < n; i++) {
        ck_assert(ranks[i] == own_ranks[i] && tokens[i] == own_tokens[i]);
        sum += tokens[i];
      }
      ck_assert_uint_eq(sum, hec_load_row(&in->load, l, s)[e]);
    }
}

static void run_beside(hec_planner *planner, inside *in, const hec_planner_options *o) {
  hec_plan_view v;
  hec_planner_view(planner, &v);
  uint8_t *has = calloc((size_t)v.n_layers * (size_t)v.n_experts * (size_t)v.n_slices * (size_t)v.n_ranks, 1);
  keep(has, &v, false, !o->forward_only);
  ck_assert_uint_eq(hec_planner_digest(planner), hec_plan_digest(&in->run.plan));
  for (int32_t i = 0; i < 6; i++) {
    random_load(&in->load);
    OK(hec_planner_step(planner, i / 2, i % 2));
    hec_policy_decide(&in->run, i / 2, i % 2);
    ck_assert_uint_eq(hec_planner_digest(planner), hec_plan_digest(&in->run.plan));
    apply_moves(planner, &v, has);
    keep(has, &v, true, !o->forward_only);
    for (int32_t l = 0; l < o->n_layers; l++) {
      OK(hec_planner_refine(planner, l, hec_load_row(&in->load, l, 0)));
      hec_policy_refine(&in->run, l, &in->load);
      ck_assert_uint_eq(hec_planner_digest(planner), hec_plan_digest(&in->run.plan));
      if (v.n_slices == 1)
        check_guests(planner, &v, l);
      check_split(planner, in, l);
    }
    OK(hec_planner_end(planner, below(2) ? in->load.counts : NULL));
    hec_policy_observe(&in->run, &in->load);
  }
  free(has);
}

/* The same options behind the policy's name, which go before those beside it. */
static void options_by_name(const hec_planner_options *o) {
  hec_planner_options plain = *o, named = *o;
  char text[64];
  inside in;
  HEC_OPENED(hec_planner) *planner = NULL;
  plain.policy = "hecate";
  plain.t = below(o->n_experts + 1);
  plain.m = below(4);
  (void)snprintf(text, sizeof text, "hecate:m=%d,t=%d,period=%d", plain.m, plain.t, plain.period);
  named.policy = text;
  named.t = named.m = HECATE_AUTO;
  named.period = 1 + below(9);
  open_inside(&in, &plain);
  OK(hec_planner_open(&named, &planner));
  run_beside(planner, &in, &plain);
  close_inside(&in);
}

HEC_TEST_LOOP(planner_is_the_policy, hec_test_cases(60)) {
  seed = 100 + (uint64_t)_i;
  hec_planner_options o = random_options();
  options_by_name(&o);
  for (int32_t p = 0; (o.policy = hec_policy_name(p, NULL, NULL)) != NULL; p++) {
    inside in;
    HEC_OPENED(hec_planner) *planner = NULL;
    open_inside(&in, &o);
    OK(hec_planner_open(&o, &planner));
    run_beside(planner, &in, &o);
    close_inside(&in);
  }
}

static void allocation(size_t bytes, void *context) {
  fprintf(stderr, "%s allocates %zu bytes\n", (const char *)context, bytes);
  abort();
}

/* After a warm-up in which policies' own scratch has grown. */
HEC_TEST(planner_takes_no_memory) {
  seed = 7;
  hec_planner_options o = random_options();
  o.n_ranks = 8;
  o.n_layers = 4;
  o.n_experts = 16;
  o.top_k = 2;
  o.t = o.m = HECATE_AUTO;
  for (int32_t p = 0; (o.policy = hec_policy_name(p, NULL, NULL)) != NULL; p++) {
    inside in;
    HEC_OPENED(hec_planner) *planner = NULL;
    open_inside(&in, &o);
    OK(hec_planner_open(&o, &planner));
    for (int32_t i = 0; i < 24; i++) {
      if (i == 12) {
        hec_set_no_memory_handler(allocation, (void *)(uintptr_t)o.policy);
        hec_fail_allocation(1);
      }
      seed = 40 + (uint64_t)i % 4;
      random_load(&in.load);
      OK(hec_planner_step(planner, i, 0));
      for (int32_t l = 0; l < o.n_layers; l++)
        OK(hec_planner_refine(planner, l, hec_load_row(&in.load, l, 0)));
      OK(hec_planner_end(planner, NULL));
    }
    hec_fail_allocation(0);
    hec_set_no_memory_handler(NULL, NULL);
    close_inside(&in);
  }
}

HEC_TEST(planner_refuses) {
  seed = 3;
  hec_planner_options good = random_options(), o;
  hec_planner *planner = NULL;
  good.top_k = 1;
#define WITH(field, value, words)                                                                                      \
  o = good;                                                                                                            \
  o.field = (value);                                                                                                   \
  REFUSED(hec_planner_open(&o, &planner), words);
  WITH(policy, "nonesuch", "policy: expected one of the ")
  WITH(policy, NULL, "found \"NULL\"")
  WITH(policy, "ideal", "reference row")
  WITH(policy, "llep:cap=0", "policy llep: cap: expected a number from 0.01 to 1000, found \"0\"")
  WITH(policy, "llep:cap=1:slots=2",
       "policy llep: cap: expected a number from 0.01 to 1000, found \"1:slots=2\" (a comma separates options)")
  WITH(policy, "eplb:slots=0", "policy eplb: slots: expected an integer from 1 to 1e+06, found \"0\"")
  WITH(cluster, NULL, "cluster")
  WITH(cluster, "no/such/file", "no/such/file")
  WITH(n_ranks, -1, "ranks: expected 1 to 8")
  WITH(n_ranks, 9, "ranks: expected 1 to 8")
  WITH(n_layers, 0, "layers")
  WITH(n_experts, -4, "experts")
  WITH(top_k, 1 << 15, "top_k")
  WITH(d_model, 0, "d_model")
  WITH(n_matrices, 4, "ffn_matrices")
  WITH(param_bytes, 0, "dtype_bytes")
  WITH(grad_bytes, -1, "grad_bytes")
  WITH(tokens, -1, "tokens")
  WITH(seq_len, 0, "seq_len")
  WITH(window_s, -1, "window_s")
  WITH(t, -3, "t: expected")
  WITH(m, 1 << 20, "m: expected")
  WITH(slots, 1 << 30, "slots: expected")
  WITH(slots, 0, "slots: expected")
  WITH(period, -2, "period: expected")
  WITH(period, 0, "period: expected")
  WITH(n_heads, -4, "n_heads: expected")
  REFUSED(hec_planner_open(NULL, &planner), "options: expected a pointer");
  REFUSED(hec_planner_open(&good, NULL), "planner: expected a pointer");
  o = good;
  o.n_layers = o.n_experts = 1 << 16;
  o.n_ranks = 8;
  REFUSED(hec_planner_open(&o, &planner), "layers * experts * ranks");
  ck_assert_ptr_null(planner);
#undef WITH
}

HEC_TEST(planner_order_of_calls) {
  seed = 5;
  hec_planner_options o = random_options();
  o.n_layers = 2;
  uint32_t counts[2 * 8 * 20] = {0};
  int32_t ranks[8], n = -1;
  uint32_t tokens[8];
  hec_sparse_items items;
  HEC_OPENED(hec_planner) *planner = NULL;
  OK(hec_planner_open(&o, &planner));
  REFUSED(hec_planner_refine(planner, 0, counts), "no step is in progress");
  REFUSED(hec_planner_end(planner, counts), "no step is in progress");
  REFUSED(hec_planner_step(planner, -1, 0), "iteration");
  REFUSED(hec_planner_step(planner, 4, -1), "micro-batch");
  OK(hec_planner_step(planner, 4, 0));
  REFUSED(hec_planner_step(planner, 5, 0), "was not ended");
  REFUSED(hec_planner_refine(planner, 2, counts), "layer from 0 to 1");
  REFUSED(hec_planner_split(planner, 0, 0, 0, ranks, tokens, &n), "not refined");
  OK(hec_planner_refine(planner, 0, counts));
  OK(hec_planner_refine(planner, 0, counts)); /* recomputed */
  REFUSED(hec_planner_split(planner, 0, o.n_ranks, 0, ranks, tokens, &n), "source below");
  REFUSED(hec_planner_guests(planner, -1, HECATE_ALL, &items), "layer");
  REFUSED(hec_planner_guests(planner, 0, 3, &items), "HECATE_BEFORE");
  REFUSED(hec_planner_end(planner, NULL), "layer 1");
  counts[0] = UINT32_MAX;
  REFUSED(hec_planner_refine(planner, 1, counts), "assignments");
  REFUSED(hec_planner_end(planner, counts), "assignments");
  counts[0] = 0;
  ck_assert_int_eq(n, -1);
  OK(hec_planner_end(planner, counts));
  REFUSED(hec_planner_step(planner, 3, 0), "iteration >= 4");
  hec_planner_close(NULL);
}

HEC_TEST(tables) {
  char version[32];
  (void)snprintf(version, sizeof version, "%d.%d.%d", HECATE_VERSION_MAJOR, HECATE_VERSION_MINOR, HECATE_VERSION_PATCH);
  ck_assert_str_eq(hec_version(), version);
  const char *summary = NULL, *source = NULL;
  int32_t n = 0;
  while (hec_policy_name(n, &summary, &source))
    n++;
  ck_assert(n > 5 && summary && source);
  ck_assert_ptr_null(hec_policy_name(-1, NULL, NULL));
  ck_assert_str_eq(hec_backend_name(0, &summary), "cpu");
  ck_assert_ptr_null(hec_backend_name(99, NULL));
  OK(hec_backend_check("cpu"));
  REFUSED(hec_backend_check("abacus"), "backend: expected one of cpu, mpi");
  hec_run_options run = hec_run_defaults(2); /* with or without a device, a body must not get memory of one */
  run.backend = "nccl";
  ck_assert_int_eq(hec_backend_check("nccl"), HECATE_FAILED);
  ck_assert_int_eq(hec_run(&run, NULL, NULL), HECATE_FAILED);
  ck_assert_ptr_nonnull(strstr(hec_error(), "do not run on devices yet"));
}
