/* deepep.csv: one dispatch or combine of DeepEP. Dispatch carries fp8 with a scale per 128 values and the choices, combine
 * bf16 with the weights. Normal mode sends a token to a node once and to each of its ranks once; low-latency mode sends a
 * message per choice. Routing is uniform. */
#include "validate/device/cases.h"

#include <string.h>

static const char *const columns[] = {"gpu",    "mode", "phase",       "nodes", "ranks",   "tokens_per_rank",
                                      "hidden", "topk", "num_experts", "sms",   "seconds", NULL};
enum { NODES_MAX = 4, LOW_LATENCY_SMS = 1 };

static void read(const hec_case_file *csv, hec_arena *arena, hec_case *c) {
  const char *mode = hec_case_file_text(csv, "mode"), *phase = hec_case_file_text(csv, "phase");
  hec_dispatch_work *work = HEC_NEW(arena, hec_dispatch_work, 1);
  int64_t nodes, ranks, hidden, top_k, experts, sms = LOW_LATENCY_SMS;
  bool dispatch = strcmp(phase, "dispatch") == 0, normal = strcmp(mode, "normal") == 0;
  c->kind = hec_arena_printf(arena, "deepep %.20s %.20s", mode, phase);
  if (!normal && strcmp(mode, "low_latency") != 0)
    c->why_not = hec_arena_printf(arena, "mode: the law knows normal and low_latency, found \"%.40s\"", mode);
  else if (!dispatch && strcmp(phase, "combine") != 0)
    c->why_not = hec_arena_printf(arena, "phase: the law knows dispatch and combine, found \"%.40s\"", phase);
  if (c->why_not || !hec_case_seconds(csv, arena, c) || !hec_case_whole(csv, "nodes", 1, &nodes, arena, c) ||
      !hec_case_whole(csv, "ranks", 2, &ranks, arena, c) ||
      !hec_case_whole(csv, "tokens_per_rank", 1, &work->tokens, arena, c) ||
      !hec_case_whole(csv, "hidden", 1, &hidden, arena, c) || !hec_case_whole(csv, "topk", 1, &top_k, arena, c) ||
      !hec_case_whole(csv, "num_experts", 1, &experts, arena, c) ||
      (normal && !hec_case_whole(csv, "sms", 1, &sms, arena, c)))
    return;
  if (ranks % nodes != 0 || top_k > experts)
    c->why_not = "ranks: expected a multiple of nodes; topk: at most num_experts";
  else if (nodes > NODES_MAX)
    c->why_not = "nodes: the tables' fabric is oversubscribed beyond 4 nodes, which this law does not know";
  if (c->why_not)
    return;
  work->bytes =
      dispatch ? (double)hidden * (1 + 4.0 / 128) + 8 * (double)top_k : 2 * (double)hidden + 4 * (double)top_k;
  work->ranks = normal ? hec_distinct_groups(experts, ranks, top_k) : (double)top_k;
  work->nodes = nodes == 1 ? 0
                : normal   ? (double)(nodes - 1) / (double)nodes * hec_distinct_groups(experts, nodes, top_k)
                           : (double)top_k * (double)(nodes - 1) / (double)nodes;
  work->n_nodes = (int32_t)nodes;
  work->ranks_per_node = (int32_t)(ranks / nodes);
  work->sms = (int32_t)sms;
  c->law = "dispatch";
  c->variant = hec_arena_printf(arena, "%s %s", mode, phase);
  c->work = work;
  c->fit = true;
  c->shape = hec_case_hash(hec_case_hash(hec_case_hash(0, hidden), top_k), experts);
}

const hec_case_table hec_case_table_deepep = {.file = "deepep.csv", .columns = columns, .read = read};
