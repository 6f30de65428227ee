/* From a trace and the user's wishes to a problem: every rule of DESIGN section 3, and what is said about it. */
#include "runtime/program/job.h"
#include "tests/support/job_case.h"
#include "tests/support/test.h"
#include "tools/front/job_make.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

HEC_TEST_JOB(made)

static void must_fail(hec_status status, const char *part) {
  ck_refused(status, part);
}

/* However much there is to say: a fixed array ended the run at the 34th once. */
HEC_TEST(any_number_of_notes) {
  char expected[24];
  hec_test_must(hec_test_job_make(&made, hec_test_small_trace, HEC_JOB_OPTIONS));
  int32_t before = made.job.n_defaults;
  for (int i = 0; i < 100; i++)
    hec_job_assume(&made.job, &made.arena, "note %d", i);
  ck_assert_int_eq(made.job.n_defaults, before + 100);
  for (int i = 0; i < 100; i++) {
    (void)snprintf(expected, sizeof expected, "note %d", i);
    ck_assert_str_eq(made.job.defaults[before + i], expected);
  }
}

HEC_TEST(ranks_from_the_user) {
  hec_test_trace t = hec_test_small_trace;
  t.extra = ",\"ranks\":8";
  hec_job_options o = HEC_JOB_OPTIONS;
  o.ranks = 2;
  hec_test_must(hec_test_job_make(&made, t, o));
  ck_assert_int_eq(made.job.problem.n_ranks, 2);
  ck_assert(hec_test_job_said(&made, "4 spread over 2") && !hec_test_job_said(&made, "ranks: "));
}
HEC_TEST(ranks_from_the_header) {
  hec_test_trace t = hec_test_small_trace;
  t.extra = ",\"ranks\":8";
  hec_test_must(hec_test_job_make(&made, t, HEC_JOB_OPTIONS));
  ck_assert_int_eq(made.job.problem.n_ranks, 8);
  ck_assert(hec_test_job_said(&made, "ranks: 8"));
}
HEC_TEST(ranks_from_the_sources) {
  hec_test_must(hec_test_job_make(&made, hec_test_small_trace, HEC_JOB_OPTIONS));
  ck_assert_int_eq(made.job.problem.n_ranks, 4);
  ck_assert(hec_test_job_said(&made, "ranks: 4") && hec_test_job_said(&made, "sources"));
}
HEC_TEST(ranks_from_the_cluster) {
  hec_test_trace t = hec_test_small_trace;
  t.sources = 1;
  hec_test_must(hec_test_job_make(&made, t, HEC_JOB_OPTIONS));
  ck_assert_int_eq(made.job.problem.n_ranks, 16);
  ck_assert(hec_test_job_said(&made, "all devices") && hec_test_job_said(&made, "totals only"));
}
HEC_TEST(more_ranks_than_devices) {
  hec_job_options o = HEC_JOB_OPTIONS;
  o.ranks = 17;
  must_fail(hec_test_job_make(&made, hec_test_small_trace, o), "16");
}
HEC_TEST(header_ranks_more_than_devices) {
  hec_test_trace t = hec_test_small_trace;
  t.extra = ",\"ranks\":64";
  must_fail(hec_test_job_make(&made, t, HEC_JOB_OPTIONS),
            "found 64 (the trace's \"ranks\"); choose --ranks 16 or a larger --cluster");
}
HEC_TEST(sources_more_than_devices) {
  hec_job_options o = HEC_JOB_OPTIONS;
  o.cluster = "1x2 nvlink=1G flops=1T mem=10G";
  must_fail(hec_test_job_make(&made, hec_test_small_trace, o),
            "found 4 (the trace's sources); choose --ranks 2 or a larger --cluster");
}
/* A calibrated cluster: whether its curves are of this model's experts is said. */
HEC_TEST_LOOP(measured_curves, 2) {
  hec_moe moe;
  hec_test_must(hec_moe_load("tiny", &moe));
  double flops_per_row = hec_work_expert(&moe).flops_per_row * (_i == 0 ? 1 : 2);
  char path[] = "/tmp/hecate-test-XXXXXX";
  int file = mkstemp(path);
  ck_assert_int_ge(file, 0);
  FILE *out = fdopen(file, "w");
  ck_assert_ptr_nonnull(out);
  fprintf(out,
          "{\"name\": \"here\", \"nodes\": 1, \"devices_per_node\": 4, \"nvlink\": {\"bandwidth\": 1e9},"
          "\"device\": {\"flops\": 1e9, \"memory_bytes\": 1e10}, \"measured\": [{\"kind\": \"expert\","
          "\"backward\": false, \"flops_per_row\": %.17g, \"points\": [[1, 2e-5], [64, 1e-3]]}]}",
          flops_per_row);
  ck_assert_int_eq(fclose(out), 0);
  hec_job_options o = HEC_JOB_OPTIONS;
  o.model = "tiny";
  o.cluster = path;
  hec_status status = hec_test_job_make(&made, hec_test_small_trace, o);
  (void)unlink(path);
  hec_test_must(status);
  ck_assert_int_eq(hec_test_job_said(&made, "measured curves of cluster here"), _i == 0);
  ck_assert_int_eq(hec_test_job_said(&made, "no measured curve of cluster here fits this model's experts"), _i == 1);
}
HEC_TEST(no_measured_curves) {
  hec_test_must(hec_test_job_make(&made, hec_test_small_trace, HEC_JOB_OPTIONS));
  ck_assert(!hec_test_job_said(&made, "computing:"));
}
HEC_TEST(more_ranks_than_experts) {
  hec_test_trace t = hec_test_small_trace;
  t.experts = 6;
  hec_job_options o = HEC_JOB_OPTIONS;
  o.ranks = 16;
  hec_test_must(hec_test_job_make(&made, t, o));
  ck_assert_int_eq(made.job.problem.ep, 4); /* largest divisor of 16 that is at most 6 */
  ck_assert_int_eq(made.job.problem.dp, 4);
  ck_assert(hec_test_job_said(&made, "4 expert-parallel groups of 4"));
  ck_assert(hec_test_job_said(&made, "gradients are reduced between them"));
}

HEC_TEST(slots_hold_all_experts) { /* 8 experts on 4 ranks, 2 on each; on 9 a group is 3 ranks */
  hec_job_options o = HEC_JOB_OPTIONS;
  o.ranks = 4;
  o.slots = 1;
  must_fail(hec_test_job_make(&made, hec_test_small_trace, o),
            "--slots: expected at least 2, so that 4 ranks can hold 8 experts, found 1");
  free_job();
  o.slots = 2;
  hec_test_must(hec_test_job_make(&made, hec_test_small_trace, o));
  ck_assert(!hec_test_job_said(&made, "slots"));
  free_job();
  o.ranks = 9;
  hec_test_must(hec_test_job_make(&made, hec_test_small_trace, o));
  ck_assert(hec_test_job_said(
      &made, "slots: at least 3 a rank, not 2, of policies whose every group of 3 ranks holds all 8 experts"));
}

HEC_TEST(own_tokens) { /* 16 cells of 30: 30 * 8 * 4 / (4 ranks * 2) = 120 */
  hec_test_trace t = hec_test_small_trace;
  t.cell = 30;
  hec_test_must(hec_test_job_make(&made, t, HEC_JOB_OPTIONS));
  ck_assert_int_eq(made.job.problem.tokens, 120);
  ck_assert_uint_eq(made.job.scale_to, 0);
  ck_assert(hec_test_job_said(&made, "tokens per rank: 120"));
}
HEC_TEST(wanted_tokens) {
  hec_job_options o = HEC_JOB_OPTIONS;
  o.tokens = 100;
  hec_test_must(hec_test_job_make(&made, hec_test_small_trace, o));
  ck_assert_int_eq(made.job.problem.tokens, 100);
  ck_assert_uint_eq(made.job.scale_to, 100 * 4 * 2);
  const hec_trace_record *record;
  hec_test_must(hec_trace_next(made.reader, &record));
  hec_load load = hec_load_new(&made.arena, 2, 4, 8);
  hec_test_must(hec_job_load(&made.job, record, &load, HEC_NEW(&made.arena, hec_load_remainder, 4 * 8)));
  ck_assert_uint_eq(hec_load_layer_total(&load, 0), 800);
  ck_assert_uint_eq(hec_load_layer_total(&load, 1), 800);
  ck_assert(!hec_test_job_said(&made, "tokens per rank"));
}
HEC_TEST_LOOP(totals_above_16384, 2) { /* 16385 tokens on each of 16 ranks; 16384 is still the trace's own */
  hec_test_trace t = {.layers = 1, .experts = 1, .top_k = 1, .sources = 1, .records = 1};
  t.cell = 16384 * 16 + (_i ? 1 : 0);
  hec_test_must(hec_test_job_make(&made, t, HEC_JOB_OPTIONS));
  ck_assert_int_eq(made.job.problem.tokens, _i ? 8192 : 16384);
  ck_assert_uint_eq(made.job.scale_to, _i ? 8192 * 16 : 0);
  ck_assert(hec_test_job_said(&made, _i ? "8192" : "16384"));
}
HEC_TEST(sources_are_never_cut) {
  hec_test_trace t = {.layers = 1, .experts = 1, .top_k = 1, .sources = 4, .records = 1, .cell = 100000};
  hec_test_must(hec_test_job_make(&made, t, HEC_JOB_OPTIONS));
  ck_assert_int_eq(made.job.problem.tokens, 100000);
  ck_assert_uint_eq(made.job.scale_to, 0);
}
HEC_TEST(too_many_assignments) { /* a rank's rows would not fit 31 bits */
  hec_job_options o = HEC_JOB_OPTIONS;
  o.tokens = 100000000;
  o.ranks = 16;
  hec_test_trace t = hec_test_small_trace;
  t.top_k = 4;
  must_fail(hec_test_job_make(&made, t, o), "assignments");
}

HEC_TEST_LOOP(phases, 6) {
  static const struct {
    const char *extra, *wanted;
    bool train;
  } cases[] = {{NULL, NULL, true},
               {",\"phase\":\"train\"", NULL, true},
               {",\"phase\":\"decode\"", NULL, false},
               {",\"phase\":\"prefill\"", NULL, false},
               {",\"phase\":\"decode\"", "train", true},
               {NULL, "forward", false}};
  hec_test_trace t = hec_test_small_trace;
  t.extra = cases[_i].extra;
  hec_job_options o = HEC_JOB_OPTIONS;
  o.phase = cases[_i].wanted;
  hec_test_must(hec_test_job_make(&made, t, o));
  ck_assert_int_eq(made.job.problem.train, cases[_i].train);
  ck_assert_int_eq(hec_test_job_said(&made, "phase: "), !o.phase && (!t.extra || !cases[_i].train));
}
HEC_TEST(unknown_phase) {
  hec_job_options o = HEC_JOB_OPTIONS;
  o.phase = "training";
  must_fail(hec_test_job_make(&made, hec_test_small_trace, o), "--phase");
}

HEC_TEST_LOOP(head_gradients, 4) {
  static const char *const wanted[] = {NULL, "beside", "after", "late"};
  hec_job_options o = HEC_JOB_OPTIONS;
  o.model = "mixtral-8x7b";
  o.tokens = 4096;
  o.head_gradients = wanted[_i];
  if (_i == 3) {
    must_fail(hec_test_job_make(&made, hec_test_small_trace, o), "--head-gradients: expected one of beside, after");
    return;
  }
  hec_test_must(hec_test_job_make(&made, hec_test_small_trace, o));
  ck_assert_int_eq(made.job.problem.head_late, _i == 2);
  ck_assert_int_eq(hec_test_job_said(&made, "--head-gradients"), _i == 0);
}

HEC_TEST_LOOP(warm_up, 6) {
  static const int32_t cases[][3] = {{11, -1, 0}, {12, -1, 5}, {30, -1, 5}, {11, 3, 3}, {30, 0, 0}, {3, 2, 2}};
  hec_test_trace t = hec_test_small_trace;
  t.records = cases[_i][0];
  hec_job_options o = HEC_JOB_OPTIONS;
  o.warmup = cases[_i][1];
  hec_test_must(hec_test_job_make(&made, t, o));
  ck_assert_int_eq(made.job.warmup, cases[_i][2]);
  ck_assert_int_eq(hec_test_job_said(&made, "warm-up"), cases[_i][1] < 0 && cases[_i][2] > 0);
}
HEC_TEST(warm_up_takes_everything) {
  hec_job_options o = HEC_JOB_OPTIONS;
  o.warmup = 3;
  must_fail(hec_test_job_make(&made, hec_test_small_trace, o), "--warmup");
}

/* Who places by transitions knows of the reported iterations those that were counted. */
static const struct {
  int32_t records, warmup, first, last;
  const char *said;
} counted[] = {
    {3, -1, 1, 5, "exflow places experts by counts of iterations 1 to 5, before the first reported (7)"},
    {3, -1, 1, 7, "by counts of iterations 1 to 7: it knows 7 to 7, which are reported, in advance"},
    {3, 1, 7, 8, "by counts of iterations 7 to 8, before the first reported (9)"},
    {3, -1, 8, 11, "it knows 8 to 11, which are reported"},
    {30, -1, 7, 30, "it knows 17 to 30, which are reported"},
    {30, 11, 7, 30, "it knows 29 to 30, which are reported"},
    {30, 12, 7, 30, "before the first reported (31)"},
    {30, 20, 7, 47, "it knows 47 to 47, which are reported"},
    {3, -1, -1, -1, "exflow places experts by counts of the whole run: it knows the reported iterations in advance"},
};

HEC_TEST_ROWS(transitions_counted, counted) {
  char over[400];
  int n = snprintf(over, sizeof over, ",\"transitions\":[[{},{},{},{},{},{},{},{\"1\":2}]]");
  if (counted[_i].first >= 0)
    (void)snprintf(over + n, sizeof over - (size_t)n, ",\"transitions_over\":[%d,%d]", (int)counted[_i].first,
                   (int)counted[_i].last);
  hec_test_trace t = hec_test_small_trace;
  t.records = counted[_i].records;
  t.stride = 2;
  t.extra = over;
  hec_job_options o = HEC_JOB_OPTIONS;
  o.warmup = counted[_i].warmup;
  hec_test_must(hec_test_job_make(&made, t, o));
  const hec_policy *rows[] = {hec_policy_find("exflow"), hec_policy_find("ep"), hec_policy_find("exflow"),
                              hec_policy_find("moetuner")};
  hec_job_note_transitions(&made.job, rows + 1, 1, &made.arena); /* ep does not */
  ck_assert(!hec_test_job_said(&made, "transitions"));
  hec_job_note_transitions(&made.job, rows, 3, &made.arena);
  ck_assert_msg(hec_test_job_said(&made, counted[_i].said), "%s", made.job.defaults[made.job.n_defaults - 1]);
  hec_job_note_transitions(&made.job, rows, 4, &made.arena);
  ck_assert(hec_test_job_said(&made, "transitions: exflow, moetuner place experts by counts of "));
}

/* Policies that place by earlier loads need some: window + 1 iterations, for one decision by all of it. */
HEC_TEST(history_too_short) {
  hec_test_must(hec_test_job_make(&made, hec_test_small_trace, HEC_JOB_OPTIONS));
  const hec_policy *rows[] = {hec_policy_find("ep"), hec_policy_find("eplb"), hec_policy_find("smartmoe"),
                              hec_policy_find("eplb")};
  hec_job_note_history(&made.job, rows, 1, 1, &made.arena);
  hec_job_note_history(&made.job, rows, 4, rows[1]->window + 1, &made.arena);
  ck_assert(!hec_test_job_said(&made, "history"));
  hec_job_note_history(&made.job, rows, 4, rows[1]->window, &made.arena);
  ck_assert(hec_test_job_said(&made, "history: 10 iterations, no load known before the first"));
  hec_job_note_history(&made.job, rows, 4, 1, &made.arena);
  ck_assert(hec_test_job_said(
      &made,
      "history: no load is known before the only iteration: eplb, smartmoe have nothing to place by before the gate"));
}

/* Sentences hold what others wrote: no byte of it steers a terminal. */
HEC_TEST(sentences_are_plain) {
  hec_test_must(hec_test_job_make(&made, hec_test_small_trace, HEC_JOB_OPTIONS));
  hec_job_assume(&made.job, &made.arena, "cluster: %s", "a\x1b[31mb\n\xff");
  ck_assert(hec_test_job_said(&made, "cluster: a?[31mb??"));
}

HEC_TEST_LOOP(shape_chosen, 4) {
  hec_test_trace t = hec_test_small_trace;
  t.extra = _i == 0 ? ",\"shape\":\"tiny\"" : _i == 1 ? ",\"model\":\"Mixtral-8x7B-Instruct\"" : NULL;
  hec_job_options o = HEC_JOB_OPTIONS;
  o.model = _i == 3 ? "olmoe" : NULL;
  hec_test_must(hec_test_job_make(&made, t, o));
  static const char *const names[] = {"tiny", "mixtral-8x7b", "gpt-moe-s", "olmoe"};
  ck_assert_str_eq(made.job.moe.name, names[_i]);
  ck_assert_int_eq(hec_test_job_said(&made, "model shape: "), _i < 3);
  ck_assert(made.job.moe.n_moe_layers == 2 && made.job.moe.n_experts == 8 && made.job.moe.top_k == 2);
  ck_assert(made.job.problem.moe == &made.job.moe && made.job.problem.n_layers == 2);
}
HEC_TEST(cluster_by_default) {
  made.reader = hec_test_trace_open(&hec_test_small_trace, 1, &made.text);
  hec_job_options o = HEC_JOB_OPTIONS;
  hec_test_must(hec_job_make(&o, made.reader, &made.arena, &made.job));
  ck_assert_str_eq(made.job.cluster.name, "p4d-4x8");
  ck_assert(hec_test_job_said(&made, "cluster: preset p4d-4x8"));
}

/* Rates so low that the clock (picoseconds in 63 bits: 106 days) cannot hold an iteration. */
HEC_TEST_LOOP(absurdly_slow_machines, 4) {
  static const char *const lines[] = {"1x4 nvlink=1G flops=1 mem=1G", "1x4 nvlink=1 flops=1T mem=1G",
                                      "1x4 nvlink=1G flops=1T mem=1G hbm=1", "1x4 nvlink=1G flops=1 mem=1G hbm=1"};
  hec_job_options o = HEC_JOB_OPTIONS;
  o.cluster = lines[_i];
  o.micro_batches = 100;
  must_fail(hec_test_job_make(&made, hec_test_small_trace, o), "slow");
}

/* The first layers of a trace: the same loads as with all layers, then cut; tokens from those layers alone. */
HEC_TEST(first_layers) {
  hec_load loads[2];
  for (int32_t i = 0; i < 2; i++) {
    hec_job_options o = HEC_JOB_OPTIONS;
    o.layers = i == 0 ? 0 : 1;
    hec_trace_close(made.reader);
    hec_text_free(&made.text);
    hec_test_must(hec_test_job_make(&made, hec_test_small_trace, o));
    ck_assert_int_eq(made.job.problem.n_layers, i == 0 ? 2 : 1);
    HEC_OPENED(hec_feed) *feed = hec_feed_new(&made.job, made.reader);
    const hec_iteration *it;
    hec_test_must(hec_feed_next(feed, &it));
    loads[i] = hec_load_new(&made.arena, it->loads->n_layers, it->loads->n_sources, it->loads->n_experts);
    ck_assert_int_eq(loads[i].n_layers, made.job.problem.n_layers);
    memcpy(hec_load_row(&loads[i], 0, 0), hec_load_row(it->loads, 0, 0),
           4 * 8 * sizeof(uint32_t)); /* of layer 0: sources x experts */
  }
  ck_assert_mem_eq(hec_load_row(&loads[0], 0, 0), hec_load_row(&loads[1], 0, 0), 4 * 8 * sizeof(uint32_t));
}
HEC_TEST(more_layers_than_the_trace) {
  hec_job_options o = HEC_JOB_OPTIONS;
  o.layers = 3;
  must_fail(hec_test_job_make(&made, hec_test_small_trace, o), "--layers");
}

/* What CPUs execute: float32, MoE blocks alone, small by default, all of it said; what the user says stays. */
HEC_TEST_LOOP(executed, 2) {
  hec_test_trace t = hec_test_small_trace;
  t.layers = 6;
  t.extra = ",\"ranks\":16";
  made.reader = hec_test_trace_open(&t, 1, &made.text);
  hec_job_options o = HEC_JOB_OPTIONS;
  o.model = _i == 0 ? NULL : "gpt2-xl-moe";
  o.ranks = _i == 0 ? 0 : 3;
  hec_test_must(hec_job_make_executed(&o, made.reader, &made.arena, &made.job));
  ck_assert_int_eq(made.job.problem.n_ranks, _i == 0 ? 4 : 3);
  ck_assert_int_eq(made.job.cluster.n_devices, made.job.problem.n_ranks);
  ck_assert(made.job.problem.n_layers == 4 && made.job.moe.n_layers == 4 && made.job.problem.tokens == 256 &&
            made.job.warmup == 0);
  ck_assert(made.job.moe.dtype_bytes == 4 && made.job.moe.grad_bytes == 4 && made.job.moe.optimizer_bytes == 8);
  ck_assert(made.job.moe.vocabulary == 0 && !made.job.moe.recompute);
  ck_assert(hec_test_job_said(&made, "layers: the first 4") && hec_test_job_said(&made, "tokens per rank: 256") &&
            hec_test_job_said(&made, "assumed rates"));
  ck_assert(hec_test_job_said(&made, "ranks: 4") == (_i == 0) && hec_test_job_said(&made, "preset tiny") == (_i == 0) &&
            hec_test_job_said(&made, "precision") == (_i == 1));
}
/* The trace's own shape is executed where its experts are hec_test_small_trace; else a small one, which is said. */
HEC_TEST_LOOP(executed_in_the_shape_of_the_trace, 3) {
  static const char form[] =
      ",\"shape\":{\"name\":\"own\",\"layers\":2,\"d_model\":%d,\"d_ffn\":%d,\"ffn_matrices\":2,\"experts\":4,"
      "\"top_k\":1,\"heads\":4,\"seq_len\":32}";
  char extra[256];
  int32_t width = _i == 0 ? 96 : _i == 1 ? 256 : 260, inner = 2 * width; /* 2 * 256 * 512 * 4 bytes: 1 MiB */
  (void)snprintf(extra, sizeof extra, form, width, inner);
  hec_test_trace t = hec_test_small_trace;
  t.extra = extra;
  made.reader = hec_test_trace_open(&t, 1, &made.text);
  hec_job_options o = HEC_JOB_OPTIONS;
  hec_test_must(hec_job_make_executed(&o, made.reader, &made.arena, &made.job));
  ck_assert_int_eq(made.job.moe.d_model, _i < 2 ? width : 64);
  ck_assert(hec_test_job_said(&made, "from the trace's header (own)") == (_i < 2));
  ck_assert(hec_test_job_said(&made, "tiny (made for CPUs), not the trace's own (own: an expert of 1.08 MB") ==
            (_i == 2));
}
/* Hosts as mpirun made them; a host's ranks share its card. A cluster that is named stays. */
HEC_TEST_LOOP(executed_on_hosts, 2) {
  made.reader = hec_test_trace_open(&hec_test_small_trace, 1, &made.text);
  hec_job_options o = HEC_JOB_OPTIONS;
  o.ranks = 4;
  o.per_host = 2;
  o.cluster = _i == 0 ? NULL : "1x4 nvlink=1G flops=10G mem=1G";
  hec_test_must(hec_job_make_executed(&o, made.reader, &made.arena, &made.job));
  ck_assert_int_eq(made.job.cluster.n_nodes, _i == 0 ? 2 : 1);
  ck_assert_int_eq(made.job.cluster.devices_per_node, _i == 0 ? 2 : 4);
  if (_i == 0)
    ck_assert_str_eq(made.job.cluster.name, "2x2 CPU cores (assumed rates)");
}
HEC_TEST(executed_on_a_small_cluster) {
  made.reader = hec_test_trace_open(&hec_test_small_trace, 1, &made.text);
  hec_job_options o = HEC_JOB_OPTIONS;
  o.cluster = "1x3 nvlink=1G flops=10G mem=1G";
  hec_test_must(hec_job_make_executed(&o, made.reader, &made.arena, &made.job));
  ck_assert(made.job.problem.n_ranks == 3 && !hec_test_job_said(&made, "assumed rates"));
}
