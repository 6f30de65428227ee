/* The rules of dispatch and their table. The candidates of a rule are a run of the ascending holders. */
#include "runtime/plan/dispatch/dispatch.h"

#include "runtime/base/table.h"
#include "runtime/plan/problem.h"

HEC_TABLE_OF(hec_dispatch);
const hec_dispatch *hec_dispatch_find(const char *name) {
#define ROW(rule) &hec_dispatch_##rule,
  static const hec_dispatch *const rows[] = {HEC_DISPATCH_LIST(ROW) NULL};
#undef ROW
  return hec_table_find(rows, name);
}

/* Splits n evenly over holders begin .. end-1, the source's rank id as the turn; over all holders if there are none. */
static void spread(const hec_dispatch_row *row, int32_t begin, int32_t end, int32_t source, uint32_t n,
                   uint32_t *tokens) {
  if (begin >= end) {
    begin = 0;
    end = row->n_holders;
  }
  int32_t count = end - begin;
  uint32_t share = n / (uint32_t)count, rest = n % (uint32_t)count;
  uint32_t turn = (uint32_t)source % (uint32_t)count; /* the candidates turn, turn+1, ... (mod count) get the rest */
  for (uint32_t p = 0; p < (uint32_t)count; p++)
    tokens[begin + (int32_t)p] = share + ((p >= turn ? p - turn : p + (uint32_t)count - turn) < rest);
}

/* All on the source where it is one of holders begin .. end-1, else spread over these. */
static void own_or_spread(const hec_dispatch_row *row, int32_t begin, int32_t end, int32_t source, uint32_t n,
                          uint32_t *tokens) {
  int32_t own = hec_dispatch_lower(row, source);
  if (own >= begin && own < end && row->holders[own] == source) {
    tokens[own] = n;
    return;
  }
  spread(row, begin, end, source, n, tokens);
}

/* The run of holders on the source's node. */
static void node_run(const hec_dispatch_row *row, int32_t source, int32_t *begin, int32_t *end) {
  int32_t node = hec_problem_node(row->problem, source);
  *begin = hec_dispatch_lower(row, node * row->problem->cluster->devices_per_node);
  *end = hec_dispatch_lower(row, hec_problem_node_end(row->problem, node));
}

/* Hecate's rule (reference hecate.md 6.1, 14): all stay on the source if it holds the expert. Else even over the
 * holders of its node; else even over all holders. No load feedback and no coordination: it needs the plan only. */
static void local_first(const hec_dispatch_row *row, int32_t source, uint32_t n, uint32_t *tokens) {
  int32_t begin, end;
  node_run(row, source, &begin, &end);
  own_or_spread(row, begin, end, source, n, tokens);
}

const hec_dispatch hec_dispatch_local_first = {
    .name = "local_first",
    .summary = "own rank, else own node, else anywhere, evenly",
    .source = "Hecate, arXiv 2502.02581, section on token dispatch",
    .own_first = true,
    .split = local_first,
};

/* LAER's lite routing (reference hecate.md 10.3): even over the holders of the source's node, without preference for
 * its own rank; else even over all holders. A rank with two slots of the expert counts twice. */
static void node_even(const hec_dispatch_row *row, int32_t source, uint32_t n, uint32_t *tokens) {
  int32_t begin, end;
  node_run(row, source, &begin, &end);
  spread(row, begin, end, source, n, tokens);
}

const hec_dispatch hec_dispatch_node_even = {
    .name = "node_even",
    .summary = "own node, else anywhere, evenly",
    .source = "LAER-MoE, arXiv 2602.11686",
    .split = node_even,
};

/* What serving frameworks do with EPLB's replicas (reference policies.md 4.1: the split is no part of EPLB). It is
 * even over all slots wherever they are. The source's rank id decides who gets the remainder. */
static void round_robin(const hec_dispatch_row *row, int32_t source, uint32_t n, uint32_t *tokens) {
  spread(row, 0, row->n_holders, source, n, tokens);
}

const hec_dispatch hec_dispatch_round_robin = {
    .name = "round_robin",
    .summary = "evenly over all slots, starting at the source's turn",
    .source = "users of EPLB (vLLM, SGLang)",
    .split = round_robin,
};

/* Expert parallelism with expert-data parallelism (DeepSpeed-MoE, arXiv 2201.05596): tokens stay inside the source's
 * expert-parallel group, ranks g*ep .. (g+1)*ep-1. They stay on the source itself if it holds the expert (always so
 * for a shadowed expert of FasterMoE). Else they go evenly over the group's slots; anywhere if the group has none. */
static void group(const hec_dispatch_row *row, int32_t source, uint32_t n, uint32_t *tokens) {
  int32_t ep = row->problem->ep, first = source / ep * ep;
  own_or_spread(row, hec_dispatch_lower(row, first), hec_dispatch_lower(row, first + ep), source, n, tokens);
}

const hec_dispatch hec_dispatch_group = {
    .name = "group",
    .summary = "own rank, else own expert-parallel group, evenly",
    .source = "DeepSpeed-MoE, arXiv 2201.05596",
    .own_first = true,
    .split = group,
};

/* Tokens stay where there is a copy. Else they go to the rank that keeps the expert in the source's own
 * expert-parallel group. Copies serve their own rank only (Pro-Prophet, reference policies.md 3.9). */
static void home(const hec_dispatch_row *row, int32_t source, uint32_t n, uint32_t *tokens) {
  const int32_t wanted[] = {source, hec_plan_keeper(row->plan, row->layer, row->expert, source)};
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
    int32_t j = hec_dispatch_lower(row, wanted[i]);
    if (j == row->n_holders || row->holders[j] != wanted[i])
      continue;
    tokens[j] = n;
    return;
  }
}

const hec_dispatch hec_dispatch_home = {
    .name = "home",
    .summary = "own rank, else the home (in the own group)",
    .source = "Pro-Prophet, arXiv 2411.10003",
    .own_first = true,
    .split = home,
};

/* First quota of the row whose source is at least `source`. */
static int32_t first_of(const hec_quota *quota, int32_t begin, int32_t end, int32_t source) {
  while (begin < end) {
    int32_t middle = begin + (end - begin) / 2;
    if (quota[middle].source < source)
      begin = middle + 1;
    else
      end = middle;
  }
  return begin;
}

/* The plan says it all: its quotas of this source must name holders and sum to n. (A policy that writes quotas writes
 * them for exactly the load they are used with.) A source without quotas of the expert was not spread: as under
 * `group`. O(log quotas of the expert + parts). */
static void quota(const hec_dispatch_row *row, int32_t source, uint32_t n, uint32_t *tokens) {
  const hec_plan *plan = row->plan;
  HEC_ASSERT(plan->quota_at != NULL);
  const int32_t *at = plan->quota_at + (size_t)row->layer * (size_t)(plan->n_experts + 1) + row->expert;
  const hec_quota *quota = plan->quota + (size_t)row->layer * (size_t)plan->quota_capacity;
  uint64_t total = 0;
  int32_t first = first_of(quota, at[0], at[1], source);
  if (first == at[1] || quota[first].source != source) {
    group(row, source, n, tokens);
    return;
  }
  for (int32_t i = first; i < at[1] && quota[i].source == source; i++) {
    int32_t j = hec_dispatch_lower(row, quota[i].rank);
    HEC_ASSERT(j < row->n_holders && row->holders[j] == quota[i].rank);
    tokens[j] += quota[i].tokens;
    total += quota[i].tokens;
  }
  HEC_ASSERT(total == n);
}

static bool quota_part(const hec_dispatch_row *row, int32_t source, int32_t rank, int32_t *at, uint32_t *tokens) {
  const hec_plan *plan = row->plan;
  const int32_t *row_at = plan->quota_at + (size_t)row->layer * (size_t)(plan->n_experts + 1) + row->expert;
  const hec_quota *quota = plan->quota + (size_t)row->layer * (size_t)plan->quota_capacity + row_at[0];
  int32_t i = *at, end = row_at[1] - row_at[0];
  while (i < end && quota[i].source < source)
    i++;
  bool found = i < end && quota[i].source == source;
  for (*tokens = 0; i < end && quota[i].source == source; i++)
    *tokens += quota[i].rank == rank ? quota[i].tokens : 0;
  *at = i;
  return found;
}

const hec_dispatch hec_dispatch_quota = {
    .name = "quota",
    .summary = "the plan's explicit quotas",
    .source = "exact-load planners (LLEP, MoonEP, UltraEP)",
    .own_unspread = true,
    .split = quota,
    .part = quota_part,
};
