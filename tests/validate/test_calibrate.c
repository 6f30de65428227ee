/* Calibration of a machine whose laws are known. A cluster with made-up curves and links stands in for it, and timelines
 * come from its laws (imitated.h). What calibration writes must predict configurations that it never saw as the machine
 * itself does. Noise and stalls must not move it far, nor disturbed readings. What it cannot describe is refused. */
#include "runtime/plan/problem.h"
#include "sim/simulate.h"
#include "tests/support/test.h"
#include "tests/validate/imitated.h"
#include "validate/calibrate/calibrate.h"
#include "validate/configurations.h"
#include "validate/stats.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TOKENS = 256, EXPERTS = 8, CASES = 48 };

HEC_TEST_ARENA(arena)

/* ---- The machine ---- */

static const char *const bases[] = {"1x4 nvlink=2G@3us flops=1T mem=1G", "4x1 nvlink=2G nic=1G@5us flops=1T mem=1G"};

/* Links of base 0 or 1, slower by 1.25, and 40 us more. */
static const char *const links[] = {
    "\"nodes\": 1, \"devices_per_node\": 4, \"nvlink\": {\"bandwidth\": 1.6e9, \"latency\": 43.75e-6}",
    "\"nodes\": 4, \"devices_per_node\": 1, \"nvlink\": {\"bandwidth\": 1.6e9, \"latency\": 0},"
    "\"nic\": {\"bandwidth\": 0.8e9, \"latency\": 46.25e-6}"};

static void add_curve(hec_json_out *json, hec_curve_kind kind, bool backward, double flops_per_row, bool kinked) {
  double scale = (backward ? 2.2 : 1) * (1 + 0.1 * (double)kind), start = 2e-5,
         slope = hec_curve_has_rows(kind) ? 4e-7 : 2e-10;
  double first = hec_curve_has_rows(kind) ? 1 : 1024;
  hec_json_object(json, NULL);
  hec_json_string(json, "kind", hec_curve_name[kind]);
  hec_json_bool(json, "backward", backward);
  if (hec_curve_has_rows(kind))
    hec_json_double(json, "flops_per_row", flops_per_row);
  if (hec_curve_has_ranks(kind))
    hec_json_int(json, "ranks", 4);
  hec_json_array(json, "points");
  for (int32_t i = 0; i < 12; i++) { /* a line; kinked: less per row from point to point */
    double x = first * (double)(1 << i), y = start + slope * x * (kinked ? pow(0.96, i) : 1);
    hec_json_array(json, NULL);
    hec_json_double(json, NULL, x);
    hec_json_double(json, NULL, y * scale);
    hec_json_close(json);
  }
  hec_json_close(json);
  hec_json_close(json);
}

static void add_curves(hec_json_out *json, const hec_moe *moe, bool kinked) {
  const hec_work_shape shapes[] = {hec_work_attention(moe), hec_work_gate(moe), hec_work_expert(moe)};
  for (int32_t backward = 0; backward < 2; backward++) {
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
      add_curve(json, shapes[i].kind, backward, shapes[i].flops_per_row * (1 + backward), kinked);
    for (hec_curve_kind kind = HEC_CURVE_PERMUTE; kind < HEC_CURVE_ALLREDUCE; kind++)
      add_curve(json, kind, backward, 0, kinked);
  }
  add_curve(json, HEC_CURVE_ALLREDUCE, false, 0, kinked);
  add_curve(json, HEC_CURVE_COUNTS, false, 0, kinked);
}

static void make_machine(int32_t base, const hec_moe *moe, bool kinked, hec_cluster *machine) {
  HEC_SCOPED(hec_text) text = {0}, list = {0};
  hec_json_out json = hec_json_begin(&list, 0);
  hec_json_array(&json, NULL);
  add_curves(&json, moe, kinked);
  hec_json_close(&json);
  hec_text_printf(&text,
                  "{%s, \"device\": {\"flops\": 1e12, \"memory_bytes\": 1e9}, \"plan\": {\"a_s\": 2e-5, \"b_s\": 3e-9},"
                  "\"measured\": ",
                  links[base]);
  hec_text_add(&text, list.data);
  hec_text_add(&text, "}");
  hec_status status = hec_cluster_parse_json(text.data, "the machine", &arena, machine);
  if (status != HEC_OK)
    ck_abort_msg("%s", hec_last_error());
}

/* ---- A calibration on it ---- */

typedef struct {
  const hec_model *model;
  hec_cluster base, machine, found;
  hec_calibration calibration;
  int32_t a_case;
  uint64_t seed;
  double disturbance; /* of the readings handed on */
} trial;

static void hand_on(void *context, int32_t index, const hec_replayed *iteration) {
  trial *t = context;
  const hec_experiment_case *one = &t->calibration.cases[t->a_case];
  if (index < one->warmup)
    return;
  hec_experiment_reading reading = {.a_case = t->a_case, .disturbance = t->disturbance};
  hec_calibration_add(&t->calibration, one->problem, &reading, iteration);
}

static void open_trial(trial *t, int32_t base, bool kinked, bool virtual_time) {
  t->model = hec_imitated_model(&arena, 2, EXPERTS, 2);
  if (hec_cluster_load(bases[base], &arena, &t->base) != HEC_OK)
    ck_abort_msg("%s", hec_last_error());
  make_machine(base, &t->model->moe, kinked, &t->machine);
  hec_calibrate_options options = {.model = t->model,
                                   .base = &t->base,
                                   .n_ranks = 4,
                                   .tokens = TOKENS,
                                   .train = true,
                                   .virtual_time = virtual_time,
                                   .seed = 5};
  if (hec_calibration_open(&t->calibration, &options, &arena) != HEC_OK)
    ck_abort_msg("%s", hec_last_error());
}

static void measure(trial *t, hec_imitated how, int32_t n_rounds) {
  how.cluster = &t->machine;
  for (int32_t round = 0; round < n_rounds; round++)
    for (int32_t i = 0; i < t->calibration.n_cases; i++) {
      how.seed = t->seed + 1000 * (uint64_t)round + (uint64_t)i;
      t->a_case = i;
      hec_imitated_run(&how, &t->calibration.cases[i], hand_on, t);
    }
}

static void read_back(trial *t) {
  HEC_SCOPED(hec_text) text = {0};
  hec_calibration_machine machine = {
      .name = "made up", .cpu = "none", .blas = "none", .backend = "cpu", .transport = "shm", .n_cores = 4};
  hec_calibration_json(&t->calibration, &machine, &text);
  hec_status status = hec_cluster_parse_json(text.data, "the calibration", &arena, &t->found);
  if (status != HEC_OK)
    ck_abort_msg("%s", hec_last_error());
}

static void fit(trial *t) {
  if (hec_calibration_fit(&t->calibration, &arena) != HEC_OK)
    ck_abort_msg("%s", hec_last_error());
  read_back(t);
}

/* ---- What it predicts ---- */

typedef struct {
  hec_sim *sim;
  hec_timeline timeline;
  const hec_experiment_case *one;
  double predicted[CASES], real[CASES];
  int32_t n;
} judge;

static void predict(void *context, int32_t index, const hec_replayed *iteration) {
  judge *j = context;
  if (index < j->one->warmup)
    return;
  hec_sim_run(j->sim, hec_lowering_program(iteration->low), (hec_sim_options){0}, &j->timeline);
  j->real[j->n] = 1e-12 * (double)hec_timeline_end_ps(iteration->timeline);
  j->predicted[j->n++] = 1e-12 * (double)hec_timeline_end_ps(&j->timeline);
}

/* Random configurations of all policies, a quarter of the tokens or more. (Below, and where a policy drops
 * assignments, experts and permutes may have fewer rows than the first knot of their curve. They cost what that
 * costs.) They are planned for what was found, at the machine's own times and at those found. */
static hec_error judge_it(const trial *t) {
  const hec_policy *policies[64];
  int32_t n_policies = 0;
  hec_experiment_case cases[CASES];
  judge j = {0};
  for (int32_t i = 0; hec_policies[i]; i++)
    if (strcmp(hec_policies[i]->schedule, "ideal") != 0)
      policies[n_policies++] = hec_policies[i];
  hec_configurations options = {.model = t->model,
                                .cluster = &t->found,
                                .policies = policies,
                                .n_policies = n_policies,
                                .schedule = "serial",
                                .n_ranks = 4,
                                .tokens = TOKENS,
                                .n_steps = 2,
                                .warmup = 1,
                                .train = true,
                                .seed = 99};
  if (hec_configurations_draw(&options, CASES, &arena, cases) != HEC_OK)
    ck_abort_msg("%s", hec_last_error());
  for (int32_t i = 0; i < CASES; i++) {
    hec_problem priced;
    const hec_problem *p = cases[i].problem;
    if (p->tokens < TOKENS / 4 || cases[i].policy->drops)
      continue;
    if (hec_problem_make(p->moe, &t->found, p->train, p->n_ranks, p->tokens, &priced) != HEC_OK)
      ck_abort_msg("%s", hec_last_error());
    j.one = &cases[i];
    j.sim = hec_sim_new(&priced, &hec_law_alpha_beta, &arena);
    hec_imitated_run(&(hec_imitated){.cluster = &t->machine}, j.one, predict, &j);
    hec_sim_free(j.sim);
  }
  hec_timeline_free(&j.timeline);
  ck_assert_int_gt(j.n, CASES / 2);
  hec_error error = hec_error_of(j.predicted, j.real, j.n);
  printf("calibration, %d configurations: median %.3g %%, p90 %.3g %%, worst %.3g %%, bias %.3g %%\n", (int)j.n,
         100 * error.median, 100 * error.p90, 100 * error.worst, 100 * error.bias);
  fflush(stdout);
  return error;
}

/* Operations whose times are lines, without noise: half of the configurations come out to the picosecond. */
HEC_TEST_LOOP(straight_machine, 2) {
  trial t = {.seed = 7};
  open_trial(&t, _i, false, false);
  measure(&t, (hec_imitated){0}, 1);
  fit(&t);
  ck_assert(t.calibration.disturbed <= 0 && !t.calibration.contaminated);
  ck_assert_double_eq_tol(t.calibration.exchange.a, 40e-6, 4e-9);
  ck_assert_double_eq_tol(t.calibration.exchange.b, 1.25, 1.25e-4);
  ck_assert_double_eq_tol(t.calibration.plan.a, 2e-5, 2e-9);
  ck_assert_double_eq_tol(t.calibration.plan.b, 3e-9, 3e-12);
  hec_error error = judge_it(&t);
  ck_assert(error.median <= 1e-9 && error.worst <= 0.01);
  hec_calibration_close(&t.calibration);
}

/* Hosts whose links are shared max-min, and take longer than computing: ranks end their exchanges apart, and gradients travel beside
 * tokens. Only exchanges count that ranks begin together, that are alone, and of the rank that ends last. So the links come out,
 * 1.25 times as slow. Where every exchange ends early, by what a queue takes at once, only links that were measured by
 * themselves come out: then no curve of an exchange is below what they take. */
static const struct {
  bool between_hosts, known;
  double early_s, b, bandwidth;
} hosts_cases[] = {{false, false, 0, 1.44, 0.69e6}, {true, false, 0, 1.25, 0.8e6}, {true, true, 0.01, 1, 0.8e6}};

HEC_TEST_ROWS(hosts, hosts_cases) {
  trial t = {.seed = 12};
  open_trial(&t, 0, false, false);
  hec_calibrate_options options = t.calibration.options;
  hec_calibration_close(&t.calibration);
  if (hec_cluster_load("4x1 nic=1M@0us nvlink=1G flops=1T mem=1G", &arena, &t.base) != HEC_OK ||
      hec_cluster_load("4x1 nic=0.8M@0us nvlink=1G flops=1T mem=1G", &arena, &t.machine) != HEC_OK ||
      hec_calibration_open(&t.calibration, &options, &arena) != HEC_OK)
    ck_abort_msg("%s", hec_last_error());
  ck_assert(t.calibration.samples.between_hosts);
  t.calibration.samples.between_hosts = hosts_cases[_i].between_hosts;
  if (hosts_cases[_i].known)
    hec_calibration_set_links(
        &t.calibration, &(hec_links_found){.nic = {.bandwidth = 0.8e6, .n = 1, .bytes = {1e6}, .seconds = {1.25}}},
        &arena);
  measure(&t, (hec_imitated){.law = &hec_law_max_min}, 1);
  for (int32_t k = 0; k < HEC_N_CURVE_KINDS; k++)
    for (int32_t i = 0; i < t.calibration.samples.exchange[k].n; i++)
      t.calibration.samples.exchange[k].y[i] =
          fmax(t.calibration.samples.exchange[k].y[i] - hosts_cases[_i].early_s, 1e-6);
  fit(&t);
  ck_assert_double_eq_tol(t.calibration.exchange.b, hosts_cases[_i].b, 0.01);
  for (int32_t i = 0; i < t.found.n_links; i++)
    if (t.found.links[i].kind == HEC_LINK_NIC_OUT)
      ck_assert_double_eq_tol(t.found.links[i].bandwidth, hosts_cases[_i].bandwidth, 0.01 * hosts_cases[_i].bandwidth);
  for (int32_t i = 0; hosts_cases[_i].between_hosts && i < t.calibration.n_curves;
       i++) { /* no exchange beats its links */
    const hec_calibrated_curve *curve = &t.calibration.curves[i];
    for (int32_t k = 0; curve->kind == HEC_CURVE_TOKENS && k < curve->fit.n_knots; k++)
      ck_assert_double_ge(curve->fit.y[k], curve->fit.x[k]);
  }
  hec_calibration_close(&t.calibration);
}

HEC_TEST_LOOP(kinked_machine, 2) {
  trial t = {.seed = 8};
  open_trial(&t, _i, true, false);
  measure(&t, (hec_imitated){0}, 1);
  fit(&t);
  hec_error error = judge_it(&t);
  /* the worst: few rows of an expert, where the curve bends most between two knots; which are drawn changes with every
   * new policy */
  ck_assert(error.median <= 0.002 && error.p90 <= 0.015 && error.worst <= 0.05);
  hec_calibration_close(&t.calibration);
}

/* 3 % of noise on every operation, 5 % of them stalled for two to ten times their time: against the quiet machine. */
HEC_TEST_LOOP(noisy_machine, 4) {
  trial t = {.seed = 9 + 100000 * (uint64_t)_i};
  open_trial(&t, _i % 2, true, false);
  measure(&t, (hec_imitated){.noise = 0.03, .stalls = 0.05}, 3);
  fit(&t);
  hec_error error = judge_it(&t);
  ck_assert(error.median <= 0.005 && error.worst <= 0.03);
  hec_calibration_close(&t.calibration);
}

/* Virtual time measures no link: they stay as given. */
HEC_TEST(virtual_time) {
  trial t = {.seed = 10};
  open_trial(&t, 0, false, true);
  measure(&t, (hec_imitated){0}, 1);
  fit(&t);
  ck_assert_int_eq(t.found.n_links, t.base.n_links);
  for (int32_t i = 0; i < t.base.n_links; i++)
    ck_assert(t.found.links[i].kind == t.base.links[i].kind &&
              t.found.links[i].latency_ps == t.base.links[i].latency_ps &&
              fabs(t.found.links[i].bandwidth / t.base.links[i].bandwidth - 1) < 1e-12);
  hec_calibration_close(&t.calibration);
}

/* Of every iteration of a case the least disturbed half of the readings teaches; it is never refused. Rounds at half the
 * speed, told as disturbed; all of them disturbed, two more than the others. */
HEC_TEST_LOOP(contaminated, 4) {
  static const double disturbance[][5] = {{0, 0, 0, 0, 0}, {9, 0, 0, 0, 9}, {0, 9, 9, 0, 9}, {3, 9, 2, 9, 4}};
  static const double share[] = {0, 0.4, 0.6, 1};
  trial t = {.seed = 11};
  open_trial(&t, 0, false, false);
  for (int32_t round = 0; round < 5; round++) {
    t.disturbance = disturbance[_i][round];
    measure(&t, (hec_imitated){.factor = t.disturbance > 5 ? 2 : 1}, 1);
  }
  fit(&t);
  ck_assert_double_eq_tol(t.calibration.disturbed, share[_i], 1e-12);
  ck_assert_int_eq(t.calibration.contaminated, share[_i] > 0.5);
  ck_assert_int_eq(t.calibration.n_read, 5 * 3 * t.calibration.n_cases);
  ck_assert(judge_it(&t).worst <= 0.02);
  hec_calibration_close(&t.calibration);
}

/* The same measurements, the same file, byte for byte; another seed, other loads. */
HEC_TEST(same_bytes) {
  hec_text text[3] = {{0}, {0}, {0}};
  for (int32_t i = 0; i < 3; i++) {
    trial t = {.seed = i < 2 ? 12 : 13};
    hec_calibration_machine machine = {
        .name = "n", .cpu = "c", .blas = "b", .backend = "cpu", .transport = "shm", .date = "d", .n_cores = 1};
    open_trial(&t, 0, true, false);
    measure(&t, (hec_imitated){.noise = 0.03}, 1);
    fit(&t);
    hec_calibration_json(&t.calibration, &machine, &text[i]);
    hec_calibration_close(&t.calibration);
  }
  ck_assert_str_eq(text[0].data, text[1].data);
  ck_assert_str_ne(text[0].data, text[2].data);
  ck_assert_ptr_nonnull(strstr(text[0].data, "\"contaminated\": false"));
  ck_assert_ptr_nonnull(strstr(text[0].data, "\"date\": \"d\""));
  for (int32_t i = 0; i < 3; i++)
    hec_text_free(&text[i]);
}

/* ---- Pace ---- */

/* measured = at speed v, exactly; fewer than half of the iterations are off. */
HEC_TEST(pace) {
  static const double speeds[] = {1, 0.97, 0.9, 0.6, 1.2};
  for (size_t s = 0; s < sizeof speeds / sizeof *speeds; s++) {
    hec_calibration c = {.speed = 0.5};
    double one[21], tried[21], measured[21];
    uint64_t seed = 77 + s;
    for (int32_t i = 0; i < 21; i++) {
      double compute = 1e-3 + hec_test_uniform(&seed), other = hec_test_uniform(&seed);
      one[i] = other + compute;
      tried[i] = other + compute / HEC_PACE_TRIED;
      measured[i] = other + compute / speeds[s];
      if (i >= 18)
        measured[i] *= 3;
      else if (i >= 15)
        measured[i] *= 0.5;
    }
    hec_calibration_pace(&c, (const double *const[]){one, tried}, measured, 21, &arena);
    ck_assert_double_eq_tol(c.speed, speeds[s] < 1 ? speeds[s] : 1, 1e-9);
  }
  hec_calibration none = {.speed = 0.5};
  double same[] = {1, 2, 3};
  hec_calibration_pace(&none, (const double *const[]){same, same}, same, 3, &arena);
  ck_assert(none.speed >= 1 && none.speed <= 1); /* nothing computes: nothing to learn */
  double hardly[] = {1.0005, 2.001, 3.0015}, slower[] = {1.2, 2.4, 3.6};
  hec_calibration_pace(&none, (const double *const[]){same, hardly}, slower, 3, &arena);
  ck_assert(none.speed >= 1 && none.speed <= 1); /* computing is half a percent: it was something else */
}

/* The calibration's cases on the machine as it is and on one whose devices are slower: pace finds by how much. */
static void total_of(void *context, int32_t index, const hec_replayed *iteration) {
  judge *j = context;
  if (index >= j->one->warmup)
    j->real[j->n++] = 1e-12 * (double)hec_timeline_end_ps(iteration->timeline);
}

HEC_TEST(pace_of_a_machine) {
  trial t = {0};
  judge runs[3] = {{0}, {0}, {0}};
  static const double speeds[] = {1, HEC_PACE_TRIED, 0.8};
  open_trial(&t, 0, true, false);
  for (int32_t k = 0; k < 3; k++) {
    for (int32_t r = 0; r < t.machine.n_devices; r++)
      t.machine.devices[r].speed = speeds[k];
    for (int32_t i = 0; i < t.calibration.n_cases; i++) {
      runs[k].one = &t.calibration.cases[i];
      hec_imitated_run(&(hec_imitated){.cluster = &t.machine}, runs[k].one, total_of, &runs[k]);
    }
  }
  hec_calibration_pace(&t.calibration, (const double *const[]){runs[0].real, runs[1].real}, runs[2].real, runs[0].n,
                       &arena);
  ck_assert_double_eq_tol(t.calibration.speed, 0.8, 1e-3);
  hec_calibration_close(&t.calibration);
}

/* ---- What it cannot describe ---- */

#define NODES                                                                                                          \
  "{\"nodes\": 2, \"devices_per_node\": 2, \"nvlink\": {\"bandwidth\": 1e9}, \"nic\": {\"bandwidth\": 1e9}, "
#define DEVICE "\"device\": {\"flops\": 1e12, \"memory_bytes\": 1e9}"
static const struct {
  const char *text, *error;
} refusals[] = {
    {NODES DEVICE ", \"leaf\": {\"nodes_per_leaf\": 1, \"bandwidth\": 1e9}}", "no leaf uplinks"},
    {NODES DEVICE ", \"links\": [{\"kind\": \"nic_out\", \"node\": 1, \"bandwidth\": 2e9}]}",
     "all links of a class alike"},
    {NODES DEVICE ", \"links\": [{\"kind\": \"port_in\", \"device\": 2, \"bandwidth\": 5e8}]}",
     "all links of a class alike"},
    {NODES DEVICE ", \"links\": [{\"kind\": \"port_out\", \"device\": 0, \"latency\": 1e-6}]}",
     "all links of a class alike"},
    {NODES DEVICE ", \"devices\": [{\"device\": 3, \"speed\": 0.5}]}", "expected no slow ones"},
};

HEC_TEST_ROWS(refused, refusals) {
  hec_calibration c;
  hec_cluster base;
  hec_calibrate_options options = {
      .model = hec_imitated_model(&arena, 1, 4, 1), .base = &base, .n_ranks = 2, .tokens = 8, .seed = 1};
  ck_assert(hec_cluster_parse_json(refusals[_i].text, "odd.json", &arena, &base) == HEC_OK);
  ck_assert_int_eq(hec_calibration_open(&c, &options, &arena), HEC_BAD_INPUT);
  ck_assert_msg(strstr(hec_last_error(), refusals[_i].error) && strstr(hec_last_error(), "odd.json"), "%s",
                hec_last_error());
  hec_calibration_close(&c);
}

/* Where experts are in shards, so are those of all its cases: their curve is that of a shard. Nothing moves there. */
HEC_TEST(experts_in_shards) {
  hec_calibration c;
  hec_cluster base;
  ck_assert(hec_cluster_load("1x4 nvlink=1G@1us flops=1T mem=1G", &arena, &base) == HEC_OK);
  const hec_model *model = hec_imitated_model(&arena, 1, 4, 1);
  hec_calibrate_options options = {.model = model, .base = &base, .n_ranks = 4, .tokens = 8, .esp = 2, .seed = 1};
  ck_assert_int_eq(hec_calibration_open(&c, &options, &arena), HEC_OK);
  ck_assert_int_gt(c.n_cases, 0);
  for (int32_t i = 0; i < c.n_cases; i++) {
    ck_assert_int_eq(c.cases[i].problem->esp, 2);
    ck_assert_double_eq(2 * c.cases[i].problem->expert.flops_per_row, hec_work_expert(&model->moe).flops_per_row);
    ck_assert(hec_policy_suits(c.cases[i].policy, c.cases[i].problem) == HEC_OK);
  }
  hec_calibration_close(&c);
  options.esp = 3;
  ck_assert_int_eq(hec_calibration_open(&c, &options, &arena), HEC_BAD_INPUT);
  ck_assert_msg(strstr(hec_last_error(), "`esp`") != NULL, "%s", hec_last_error());
  hec_calibration_close(&c);
}
