/* Records become loads of micro-batches: by hand for `ep`, what holds for every policy, and what they do to a step. */
#include "sim/training_loads.h"

#include "sim/training.h"
#include "tests/support/job_case.h"
#include "tests/support/test.h"
#include "tests/support/training_case.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

HEC_TEST_ARENA(arena)

static hec_job job;
static hec_training_loads loads;

static hec_trace_reader *open(const char *text, const char *cluster, int32_t ranks) {
  hec_trace_reader *reader;
  hec_job_options options = HEC_JOB_OPTIONS;
  options.cluster = cluster;
  options.ranks = ranks;
  options.model = "tiny";
  ck_ok(hec_trace_open_memory(text, strlen(text), "records", &reader));
  ck_ok(hec_job_make(&options, reader, &arena, &job));
  return reader;
}

static const char two_ranks[] = "1x2 nvlink=300G@2us flops=312T mem=40G";
/* Experts 0 and 1 are on rank 0. Layer 1 is even. */
static const char by_hand[] =
    "{\"format\":\"hecate-trace\",\"version\":1,\"layers\":2,\"experts\":4,\"top_k\":1,\"source_ranks\":2,"
    "\"layout\":\"layer x source_rank x expert\"}\n"
    "{\"iter\":1,\"layers\":[[[8,0,0,0],[0,0,0,0]],[[1,1,1,1],[1,1,1,1]]]}\n"
    "{\"iter\":2,\"layers\":[[[4,0,1,1],[2,0,0,0]],[[1,1,1,1],[1,1,1,1]]]}\n"
    "{\"iter\":3,\"layers\":[[[0,1,3,0],[1,1,1,1]],[[1,1,1,1],[1,1,1,1]]]}\n";

/* Policy ep alone, one stage. */
static hec_training_loads_of of_ep(int32_t n_layers, int32_t n_micro, double capacity, int32_t warmup) {
  static const hec_policy *policies[] = {&hec_policy_ep};
  return (hec_training_loads_of){.job = &job,
                                 .policies = policies,
                                 .n_policies = 1,
                                 .n_threads = 1,
                                 .capacity = capacity,
                                 .n_layers = n_layers,
                                 .n_micro = n_micro,
                                 .n_stages = 1,
                                 .warmup = warmup};
}

/* Record 2: ranks compute 6 and 2, 2 of 8 cross each way, as in an even spread. Record 3: 3 and 5, and 3 cross from rank 0.
 * The model has twice as many layers, the step one micro-batch more than records are left. */
HEC_TEST(ep_by_hand) {
  HEC_OPENED(hec_trace_reader) *reader = open(by_hand, two_ranks, 2);
  const hec_training_loads_of of = of_ep(4, 3, 0, -1);
  static const int32_t rows[3][2] = {{6, 0}, {4, 1}, {6, 0}};
  static const double received[3] = {1, 1.5, 1};
  ck_ok(hec_training_loads_make(&of, reader, &arena, &loads));
  ck_assert_int_eq(loads.n_before, 1);
  ck_assert_int_eq(loads.n_records, 2);
  for (int32_t l = 0; l < 4; l++)
    for (int32_t m = 0; m < 3; m++) {
      const hec_layer_load *load = &loads.of[0].loads[l * 3 + m];
      for (int32_t e = 0; e < 2; e++)
        ck_assert_int_eq(e < load->n ? load->rows[e] : 0, l < 2 ? rows[m][e] : 2);
      ck_near(load->received, l < 2 ? received[m] : 1);
    }
  ck_near(hec_series_quantile(&loads.of[0].overload, 1), 1.5);
  ck_near(hec_series_quantile(&loads.of[0].overload, 0), 1);
  ck_assert_ptr_null(loads.of[0].gather_s);
  ck_near(loads.of[0].moves_s, 0);
  hec_training_loads_free(&of, &loads);
}

/* Capacity 1.5: of 8 assignments on 2 ranks and 4 experts the mean is 1, so a rank sends at most 2 to an expert. Record 2 loses 2
 * of rank 0's 4 to expert 0, record 3 one of its 3 to expert 2. Layer 1 nothing: 3 of 32. Then 3 no longer cross from rank 0. */
HEC_TEST(capacity_by_hand) {
  HEC_OPENED(hec_trace_reader) *reader = open(by_hand, two_ranks, 2);
  const hec_training_loads_of of = of_ep(2, 2, 1.5, -1);
  static const int32_t rows[2][2] = {{4, 0}, {3, 1}};
  ck_ok(hec_training_loads_make(&of, reader, &arena, &loads));
  for (int32_t m = 0; m < 2; m++) {
    const hec_layer_load *load = &loads.of[0].loads[m];
    for (int32_t e = 0; e < 2; e++)
      ck_assert_int_eq(e < load->n ? load->rows[e] : 0, rows[m][e]);
    ck_near(load->received, 1);
    ck_assert_int_eq(loads.of[0].loads[2 + m].rows[0], 2);
  }
  ck_near(loads.of[0].dropped_share, 3.0 / 32);
  hec_training_loads_free(&of, &loads);
}

/* A single record is before the step and in it: dropped once, and counted. */
HEC_TEST(capacity_of_a_single_record) {
  static const char single[] =
      "{\"format\":\"hecate-trace\",\"version\":1,\"layers\":1,\"experts\":4,\"top_k\":1,\"source_ranks\":2,"
      "\"layout\":\"layer x source_rank x expert\"}\n{\"iter\":1,\"layers\":[[[4,0,0,0],[0,4,0,0]]]}\n";
  HEC_OPENED(hec_trace_reader) *reader = open(single, two_ranks, 2);
  const hec_training_loads_of of = of_ep(1, 1, 1, 0);
  ck_ok(hec_training_loads_make(&of, reader, &arena, &loads));
  ck_near(loads.of[0].dropped_share, 6.0 / 8);
  ck_assert_int_eq(loads.of[0].loads[0].rows[0] + loads.of[0].loads[0].rows[1], 2);
  hec_training_loads_free(&of, &loads);
}

/* Two groups take turns: group g has records g, 2 + g, ... of the three, and begins again. */
HEC_TEST(groups_in_turn) {
  HEC_OPENED(hec_trace_reader) *reader = open(by_hand, two_ranks, 2);
  const hec_policy *policies[] = {&hec_policy_ep};
  hec_training_loads_of of = {.job = &job,
                              .policies = policies,
                              .n_policies = 1,
                              .n_threads = 1,
                              .n_layers = 2,
                              .n_micro = 2,
                              .n_groups = 2,
                              .n_stages = 1};
  static const int32_t busiest[2][2] = {{8, 5}, {6, 8}}; /* [group][micro-batch]: records 0, 2 and 1, 0 */
  ck_ok(hec_training_loads_make(&of, reader, &arena, &loads));
  ck_assert_int_eq(loads.n_records, 3);
  ck_assert_int_eq(loads.n_groups, 2);
  for (int32_t g = 0; g < 2; g++)
    for (int32_t m = 0; m < 2; m++) {
      const hec_layer_load *load = &loads.of[0].loads[(g * 2 + 0) * 2 + m];
      ck_assert_int_eq(load->rows[0] + load->rows[1], busiest[g][m]);
    }
  hec_training_loads_free(&of, &loads);
  of.n_groups = 40; /* no more than records */
  ck_ok(hec_training_loads_make(&of, reader, &arena, &loads));
  ck_assert_int_eq(loads.n_groups, 3);
  hec_training_loads_free(&of, &loads);
  of.records = 2;
  ck_ok(hec_training_loads_make(&of, reader, &arena, &loads));
  ck_assert_int_eq(loads.n_records, 2);
  ck_assert_int_eq(loads.n_groups, 2);
  hec_training_loads_free(&of, &loads);
}

/* Of 4 experts on 2 ranks: FSDP gathers all for every micro-batch again, and holds no whole one. EPLB keeps one slot
 * more than two; SYMI's slots hold the same guests in both records. So the second keeps none for itself alone. */
static const struct {
  const char *policy;
  int32_t replicas, guests[2], kept[2];
  bool again;
} copies[] = {{"ep", 0, {0, 0}, {0, 0}, false},
              {"fsdp", 0, {4, 4}, {0, 0}, true},
              {"eplb", 1, {0, 0}, {0, 0}, false},
              {"symi", 0, {4, 4}, {4, 0}, false}};

HEC_TEST_ROWS(copies_are_counted, copies) {
  HEC_OPENED(hec_trace_reader) *reader = open(by_hand, two_ranks, 2);
  const hec_policy *policies[] = {hec_policy_find(copies[_i].policy)};
  const hec_training_loads_of of = {.job = &job,
                                    .policies = policies,
                                    .n_policies = 1,
                                    .n_threads = 1,
                                    .n_layers = 2,
                                    .n_micro = 2,
                                    .n_stages = 1,
                                    .warmup = 1};
  ck_ok(hec_training_loads_make(&of, reader, &arena, &loads));
  for (int32_t m = 0; m < 2; m++) {
    const hec_layer_load *load = &loads.of[0].loads[m];
    ck_assert_int_eq(load->replicas, copies[_i].replicas);
    ck_assert_int_eq(load->guests, copies[_i].guests[m]);
    ck_assert_int_eq(load->guests_kept, copies[_i].kept[m]);
    ck_assert_int_eq(load->guests_again, copies[_i].again);
  }
  hec_training_loads_free(&of, &loads);
}

/* The warm-up may be chosen, and must leave something. A single record is before the step and in it. */
HEC_TEST(warmup) {
  HEC_OPENED(hec_trace_reader) *reader = open(by_hand, two_ranks, 2);
  const hec_policy *policies[] = {&hec_policy_ep};
  hec_training_loads_of of = {
      .job = &job, .policies = policies, .n_policies = 1, .n_threads = 1, .n_layers = 2, .n_micro = 8, .n_stages = 1};
  ck_ok(hec_training_loads_make(&of, reader, &arena, &loads));
  ck_assert_int_eq(loads.n_before, 0);
  ck_assert_int_eq(loads.n_records, 3);
  ck_assert_int_eq(loads.of[0].loads[0].rows[0], 8);
  hec_training_loads_free(&of, &loads);
  of.warmup = 3;
  ck_refused(hec_training_loads_make(&of, reader, &arena, &loads), "less than the trace's 3 records, found 3");
  hec_training_loads_free(&of, &loads);
  hec_trace_close(reader);
  char one[1024] = "";
  size_t head = (size_t)(strchr(strchr(by_hand, '\n') + 1, '\n') - by_hand) + 1;
  memcpy(one, by_hand, head);
  reader = open(one, two_ranks, 2);
  of.warmup = -1;
  ck_ok(hec_training_loads_make(&of, reader, &arena, &loads));
  ck_assert_int_eq(loads.n_before, 1);
  ck_assert_int_eq(loads.n_records, 1);
  ck_assert_int_eq(loads.of[0].loads[7].rows[0], 8);
  hec_training_loads_free(&of, &loads);
}

static int32_t all_policies(const hec_policy *policies[64]) {
  int32_t n = 0;
  for (int32_t i = 0; hec_policies[i]; i++)
    if (!hec_policies[i]->placed && !hec_policies[i]->reference)
      policies[n++] = hec_policies[i];
  return n;
}

/* Whatever moves or copies experts. The busiest rank has the mean at least and never more than all, nothing is negative, and
 * the number of threads changes nothing. */
HEC_TEST(every_policy) {
  HEC_SCOPED(hec_text) text = {0};
  const hec_policy *policies[64];
  const hec_test_trace trace = {.layers = 3, .experts = 16, .top_k = 2, .sources = 8, .records = 9, .first_iter = 1};
  hec_test_trace_write(&trace, 7, &text);
  HEC_OPENED(hec_trace_reader) *reader = open(text.data, "2x4 gpu=h100 nics=4", 8);
  int32_t n = all_policies(policies);
  hec_training_loads_of of = {.job = &job,
                              .policies = policies,
                              .n_policies = n,
                              .n_threads = 1,
                              .n_layers = 3,
                              .n_micro = 6,
                              .n_stages = 1,
                              .warmup = -1};
  hec_training_loads again;
  ck_ok(hec_training_loads_make(&of, reader, &arena, &loads));
  of.n_threads = 3;
  ck_ok(hec_training_loads_make(&of, reader, &arena, &again));
  for (int32_t p = 0; p < n; p++) {
    ck_assert_msg(hec_series_quantile(&loads.of[p].overload, 0) >= 1 - 1e-12, "%s", policies[p]->name);
    ck_assert(loads.of[p].moves_s >= 0);
    for (int32_t i = 0; i < 3 * 6; i++) {
      const hec_layer_load *load = &loads.of[p].loads[i], *other = &again.of[p].loads[i];
      int64_t sum = 0;
      ck_assert_int_eq(load->n, other->n);
      for (int32_t e = 0; e < load->n; e++) {
        ck_assert_int_ge(load->rows[e], 0);
        ck_assert_int_eq(load->rows[e], other->rows[e]);
        sum += load->rows[e];
      }
      ck_assert_msg(sum > 0 && load->received >= 0, "%s", policies[p]->name);
      ck_near(load->received, other->received);
      for (int k = 0; loads.of[p].gather_s && k < 2; k++)
        ck_assert(loads.of[p].gather_s[2 * i + k] >= 0);
    }
  }
  hec_training_loads_free(&of, &loads);
  hec_training_loads_free(&of, &again);
}

/* With a rank on each node and slow NICs, by hand. In a pass of a micro-batch the rank with most guests receives every one of them
 * (of experts in slices all but its own slice), in the backward as many gradients leave it. Attention hides no more than its own
 * time. Experts of a plan in slices that never changes are left to the step. (symi's slots may have an expert twice, which
 * travels once.) */
static const char *const nics[] = {"1M", "20M", "3G"};
static const double nic_rates[] = {1e6, 20e6, 3e9};

HEC_TEST_LOOP(gathers_take_their_bytes, 3) {
  HEC_SCOPED(hec_text) text = {0};
  char cluster[64];
  const hec_policy *policies[64];
  const hec_test_trace trace = {.layers = 2, .experts = 16, .top_k = 2, .sources = 4, .records = 6, .first_iter = 1};
  hec_test_trace_write(&trace, 7, &text);
  (void)snprintf(cluster, sizeof cluster, "4x1 gpu=h100 nic=%s", nics[_i]);
  HEC_OPENED(hec_trace_reader) *reader = open(text.data, cluster, 4);
  int32_t n = all_policies(policies), n_sharded = 0, n_bounded = 0;
  const hec_training_loads_of of = {.job = &job,
                                    .policies = policies,
                                    .n_policies = n,
                                    .n_threads = 1,
                                    .n_layers = 2,
                                    .n_micro = 4,
                                    .n_stages = 1,
                                    .warmup = 2};
  ck_ok(hec_training_loads_make(&of, reader, &arena, &loads));
  const hec_memory_cost *bytes = &job.problem.bytes;
  for (int32_t p = 0; p < n; p++) {
    const hec_training_routing *r = &loads.of[p];
    bool fsdp = strcmp(policies[p]->name, "fsdp") == 0;
    ck_assert_int_eq(r->sharded, fsdp ? 16 : 0);
    n_sharded += fsdp;
    for (int32_t at = 0; at < 2 * 4 && !fsdp && strcmp(policies[p]->name, "symi") != 0; at++) {
      const hec_layer_load *load = &r->loads[at];
      double window_s = hec_problem_window_s(&job.problem, at / 4), exposed_s[2] = {0};
      double guests = load->guests * (policies[p]->sliced ? 0.75 : 1) / nic_rates[_i];
      for (int way = 0; r->gather_s && way < 2; way++)
        exposed_s[way] = r->gather_s[2 * at + way];
      ck_assert_msg(exposed_s[0] + window_s >= guests * bytes->expert_param, "%s: %g + %g s for %d guests",
                    policies[p]->name, exposed_s[0], window_s, (int)load->guests);
      ck_assert_msg(
          exposed_s[1] + 2 * window_s >= guests * (bytes->expert_grad + (load->guests_again ? bytes->expert_param : 0)),
          "%s: backward %g + %g s for %d guests", policies[p]->name, exposed_s[1], 2 * window_s, (int)load->guests);
      n_bounded += load->guests > 0;
    }
  }
  ck_assert_int_eq(n_sharded, 1);
  ck_assert_int_gt(n_bounded, 0);
  hec_training_loads_free(&of, &loads);
}

/* ---- Copies that stay ---- */

static hec_moe moe;

static const char *const sum_nics[] = {"100M", "1G", "20G", "1000T"};
/* Seconds of the sums of a policy's residents in a step on four nodes of a GPU; `fast`: in no time but the network's. */
static double replicas_s(const char *policy, const char *cluster, const char *recipe, bool fast, int32_t n_stages) {
  const hec_test_trace trace = {.layers = 2, .experts = 16, .top_k = 2, .sources = 4, .records = 6, .first_iter = 1};
  const hec_policy *policies[] = {hec_policy_find(policy)};
  HEC_SCOPED(hec_text) text = {0};
  hec_test_trace_write(&trace, 7, &text);
  ck_ok(hec_moe_load("tiny", &moe));
  hec_training t = hec_test_training(&moe, "ep=4", 4, 4, recipe, &arena);
  hec_gpu_laws laws = *t.laws;
  laws.add.byte_s *= fast ? 0 : 1;
  t.laws = &laws;
  HEC_OPENED(hec_trace_reader) *reader = open(text.data, cluster, 4);
  const hec_training_loads_of of = {.job = &job,
                                    .training = &t,
                                    .policies = policies,
                                    .n_policies = 1,
                                    .n_threads = 1,
                                    .n_layers = 4, /* twice the trace's */
                                    .n_micro = 4,
                                    .n_stages = n_stages,
                                    .warmup = 2};
  ck_ok(hec_training_loads_make(&of, reader, &arena, &loads));
  double s = loads.of[0].replicas_s;
  ck_assert_ptr_null(loads.of[0].gather_s);
  hec_training_loads_free(&of, &loads);
  return s;
}

/* micromoe keeps every expert twice, on two of four ranks. In each of the 4 layers a rank has 8 of 16 experts, of which it sends half
 * of each gradient to the other keeper and adds up the half that comes. Then the sums come back, or parameters with ZeRO. With
 * FSDP on one expert-parallel group it is the same. All before the optimizer, once a step, whatever the micro-batches. */
static const struct {
  const char *recipe;
  double there, back; /* bytes of a parameter; the model has them in fp32 */
} sums[] = {
    {"zero=0 grads=fp32", 4, 4}, {"zero=0 grads=bf16", 2, 2}, {"zero=1 grads=bf16", 2, 4}, {"zero=3 grads=fp32", 4, 4}};

HEC_TEST_ROWS(sums_by_hand, sums) {
  const double rate = 1e9, latency = 5e-6;
  double s = replicas_s("micromoe", "4x1 gpu=h100 nic=1G@5us nic_eff=1", sums[_i].recipe, true, 1);
  double params = hec_moe_expert_params(&moe), half = 8 * 0.5 * params;
  ck_assert_double_eq_tol(s, 4 * (2 * latency + half * (sums[_i].there + sums[_i].back) / rate), 1e-4 * s);
  double slow_s = replicas_s("micromoe", "4x1 gpu=h100 nic=1G@5us nic_eff=1", sums[_i].recipe, false, 1);
  const hec_training t = hec_test_training(&moe, "ep=4", 4, 4, "", &arena);
  double added_s = 3 * half * sums[_i].there * t.laws->add.byte_s * t.constants.in_step;
  ck_assert_double_eq_tol(slow_s - s, 4 * added_s, 1e-6 * slow_s);
  ck_near(replicas_s("micromoe", "4x1 gpu=h100 nic=1G@5us nic_eff=1", sums[_i].recipe, true, 2), s / 2);
}

/* Faster links never make it longer, and where nothing takes time there is nothing. Policies whose copies do not stay have none. */
static const char *const with_residents[] = {"micromoe", "lplb", "eplb-global"};
HEC_TEST_LOOP(sums_and_links, 3) {
  double before_s = INFINITY;
  for (int i = 0; i < 4; i++) {
    char cluster[64];
    (void)snprintf(cluster, sizeof cluster, "4x1 gpu=h100 nic=%s@0us nic_eff=1", sum_nics[i]);
    double s = replicas_s(with_residents[_i], cluster, "zero=1", true, 1);
    ck_assert_msg(s < before_s && (i == 3 || s > 0), "%s over %s: %g s, %g s over slower ones", with_residents[_i],
                  sum_nics[i], s, before_s);
    before_s = s;
  }
  ck_assert_double_lt(before_s, 1e-8);
}

/* ---- What loads do to a step ---- */

static hec_training training(const char *layout, int32_t gpus, int32_t batch) {
  ck_ok(hec_moe_load("mixtral-8x7b", &moe));
  return hec_test_training(&moe, layout, gpus, batch, "", &arena);
}

static double step_s(const hec_training_job *of) {
  hec_training_result r;
  ck_ok(hec_training_run(of, &r));
  return r.step_s;
}

/* Even loads are the balanced step to the picosecond; skewed ones are never faster; what is on top is on top. */
HEC_TEST(loads_of_a_step) {
  const hec_training t = training("ep=8", 8, 32);
  const int32_t even[1] = {8192}, hot[1] = {12000}, n = 32 * 4;
  hec_layer_load *own = HEC_NEW(&arena, hec_layer_load, n);
  double *gather_s = HEC_NEW(&arena, double, 2 * n);
  hec_training_job of = {.training = &t};
  double balanced = step_s(&of);
  for (int32_t i = 0; i < n; i++) {
    own[i] = (hec_layer_load){.rows = even, .n = 1, .received = 1};
    gather_s[2 * i] = 1e-4;
    gather_s[2 * i + 1] = 3e-4;
  }
  of.loads = own;
  ck_assert_double_eq_tol(step_s(&of), balanced, 1e-9 * n); /* each layer to a picosecond */
  of.gather_s = gather_s;
  of.moves_s = 0.25;
  ck_assert_double_eq_tol(step_s(&of), balanced + 0.25 + n * 4e-4, 1e-6);
  of.gather_s = NULL;
  of.moves_s = 0;
  own[5].rows = hot;
  double one = step_s(&of);
  ck_assert(one > balanced);
  own[77].rows = hot;
  ck_assert(step_s(&of) > one);
}

/* Sums are data-parallel traffic: on top where nothing hides that, at most as much elsewhere. Replicas are gathered by FSDP, and without
 * ZeRO every keeper updates all of them. */
HEC_TEST(replicas_of_a_step) {
  static const struct {
    const char *recipe;
    double hidden; /* of a second of sums */
  } of[] = {{"zero=1 dp-overlap=off", 0}, {"zero=1 dp-overlap=full", 1}, {"zero=0 dp-overlap=off", 0}};
  const int32_t even[1] = {8192}, n = 32 * 4;
  hec_layer_load *own = HEC_NEW(&arena, hec_layer_load, n);
  for (int i = 0; i < 3; i++) {
    hec_training t = training("ep=8", 8, 32);
    ck_ok(hec_recipe_read(of[i].recipe, &t.recipe));
    hec_training_job with = {.training = &t, .loads = own};
    for (int32_t k = 0; k < n; k++)
      own[k] = (hec_layer_load){.rows = even, .n = 1, .received = 1};
    double none_s = step_s(&with);
    with.replicas_s = 0.05;
    ck_assert_double_eq_tol(step_s(&with), none_s + 0.05 * (1 - of[i].hidden), 1e-9);
    with.replicas_s = 0;
    for (int32_t k = 0; k < n; k++)
      own[k].replicas = 1;
    double params = 32 * hec_moe_expert_params(&moe), s = step_s(&with) - none_s, added_s = 0;
    for (int backward = 0; backward < 2; backward++) { /* in every layer of every micro-batch */
      hec_layer_load one = own[0];
      added_s += n * hec_test_pass(&t, HEC_LAYER_MOE, &one, backward).compute_s;
      one.replicas = 0;
      added_s -= n * hec_test_pass(&t, HEC_LAYER_MOE, &one, backward).compute_s;
    }
    ck_assert_double_gt(added_s, 0);
    double updated_s = t.recipe.zero == 0 ? 50 * params * t.laws->norm.byte_s : 0;
    ck_assert_double_eq_tol(s, added_s + updated_s, 1e-6);
  }
  hec_training t = training("ep=8", 64, 256);
  ck_ok(hec_recipe_read("zero=3 dp-overlap=off", &t.recipe));
  hec_training_job with = {.training = &t, .loads = own};
  hec_training_result r;
  ck_ok(hec_training_run(&with, &r));
  double sharded_s[2] = {0, r.sharded_s};
  for (int32_t k = 0; k < n; k++)
    own[k].replicas = 0;
  ck_ok(hec_training_run(&with, &r));
  sharded_s[0] = r.sharded_s;
  double layer = 32 * hec_moe_expert_params(&moe); /* one expert in each layer is all that a rank has of them */
  ck_assert_double_eq_tol(sharded_s[1] - sharded_s[0],
                          4 * (hec_training_data_s(&t, 0, 2 * layer) - hec_training_data_s(&t, 0, layer)), 1e-9);
}

/* A stage that has virtual stages alone is one part; dualpipe has each part twice and no virtual ones. */
HEC_TEST(parts_of_a_layout) {
  const hec_training plain = training("ep=8", 8, 32), parts = training("ep=8 vpp=4", 8, 32);
  ck_near(step_s(&(hec_training_job){.training = &plain}), step_s(&(hec_training_job){.training = &parts}));
  const hec_training two = training("pp=4 ep=8", 32, 64), four = training("pp=4 vpp=2 ep=8", 32, 64);
  hec_training_result r;
  hec_training_job dual = {.training = &two, .pipeline = &hec_pipeline_dualpipe};
  ck_ok(hec_training_run(&dual, &r));
  ck_assert(r.step_s < step_s(&(hec_training_job){.training = &two}));
  dual.training = &four;
  ck_refused(hec_training_run(&dual, &r),
             "pipeline dualpipe: expected a layout of 4 virtual stages, found pp=4 vpp=2; use vpp=1");
}
