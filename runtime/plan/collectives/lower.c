/* A row emits transfers in any order; `finish` brings each stage into order and adds up those of equal pair. Mostly they
 * stand in order already. Where they are many, bytes are added into a table of all pairs, which is then read in order:
 * O(transfers + ranks^2). Else by two stable counting sorts (destination, then source): O(transfers + ranks). Table, second
 * half and counters live in the spare capacity of the list itself: no allocation once the lists have grown. */
#include "runtime/plan/collectives/lower.h"
#include "runtime/plan/problem.h"

#include <string.h>

hec_sparse_run hec_sparse_run_at(const hec_sparse *sparse, int32_t first, int32_t slice, bool per_item) {
  const int32_t *at = sparse->receiver_at, n_slices = sparse->n_slices;
  hec_sparse_run run = {
      .first = first,
      .end = first + 1,
      .owner = sparse->owner[first * n_slices + slice],
      .slice = slice,
      .receiver = sparse->receiver + at[first],
      .n_receivers = at[first + 1] - at[first],
  };
  size_t bytes = (size_t)run.n_receivers * sizeof *run.receiver;
  while (!per_item && run.end < sparse->n_items && sparse->owner[run.end * n_slices + slice] == run.owner &&
         at[run.end + 1] - at[run.end] == run.n_receivers &&
         memcmp(sparse->receiver + at[run.end], run.receiver, bytes) == 0)
    run.end++;
  run.bytes = (run.end - first) * hec_part_bytes(sparse->bytes, sparse->bytes_per_param, slice, n_slices);
  return run;
}

hec_node_run hec_node_run_at(const hec_problem *problem, const hec_sparse_run *run, int32_t first) {
  hec_node_run node = {.node = hec_problem_node(problem, run->receiver[first]), .first = first, .end = first + 1};
  int32_t node_end = hec_problem_node_end(problem, node.node);
  while (node.end < run->n_receivers && run->receiver[node.end] < node_end)
    node.end++;
  return node;
}

int32_t hec_collective_entry(const hec_problem *problem, const hec_sparse_run *run, hec_node_run node) {
  int32_t per_node = problem->cluster->devices_per_node;
  int32_t wanted = node.node * per_node + run->owner % per_node;
  for (int32_t i = node.first; i < node.end; i++)
    if (run->receiver[i] >= wanted)
      return i;
  return node.first;
}

void hec_collective_begin(hec_collective_plan *plan, const hec_sparse *sparse, int32_t n_stages) {
  HEC_ASSERT(n_stages <= HEC_COLLECTIVE_STAGES_MAX);
  plan->n_stages = n_stages;
  plan->n_chunks = 1;
  plan->n_parts = sparse->n_slices;
  for (int32_t k = 0; k < HEC_COLLECTIVE_STAGES_MAX; k++)
    plan->stage[k].n = plan->relayed[k].n = 0;
}

/* Stable counting sort of from[0..n) into to[0..n) by destination or source; count: [n_ranks + 1], used for .bytes. */
static void sort_by(const hec_transfer *from, hec_transfer *to, size_t n, hec_transfer *count, int32_t n_ranks,
                    bool by_source) {
  for (int32_t r = 0; r <= n_ranks; r++)
    count[r].bytes = 0;
  for (size_t i = 0; i < n; i++)
    count[(by_source ? from[i].source : from[i].destination) + 1].bytes++;
  for (int32_t r = 1; r <= n_ranks; r++)
    count[r].bytes += count[r - 1].bytes;
  for (size_t i = 0; i < n; i++)
    to[count[by_source ? from[i].source : from[i].destination].bytes++] = from[i];
}

static void merge_pairs(hec_transfer_list *list) {
  size_t kept = 0;
  for (size_t i = 0; i < list->n; i++) {
    hec_transfer *last = kept > 0 ? &list->data[kept - 1] : NULL;
    const hec_transfer *next = &list->data[i];
    if (last && last->source == next->source && last->destination == next->destination) {
      last->bytes += next->bytes;
      continue;
    }
    list->data[kept] = *next;
    list->data[kept++].item = -1;
  }
  list->n = kept;
}

static bool is_in_order(const hec_transfer_list *list) {
  for (size_t i = 1; i < list->n; i++) {
    const hec_transfer *a = &list->data[i - 1], *b = &list->data[i];
    if (a->source > b->source || (a->source == b->source && a->destination > b->destination))
      return false;
  }
  return true;
}

/* Merges by the table of pairs, `bytes` [n_ranks * n_ranks]. Bytes are never 0. */
static void tabulate(hec_transfer_list *list, int32_t n_ranks) {
  size_t n = list->n, n_pairs = (size_t)n_ranks * (size_t)n_ranks, kept = 0;
  HEC_RESERVE(list->data, list->capacity,
              n + (n_pairs * sizeof(int64_t) + sizeof *list->data - 1) / sizeof *list->data);
  int64_t *bytes = (int64_t *)(void *)(list->data + n);
  memset(bytes, 0, n_pairs * sizeof *bytes);
  for (size_t i = 0; i < n; i++)
    bytes[(size_t)list->data[i].source * (size_t)n_ranks + (size_t)list->data[i].destination] += list->data[i].bytes;
  for (int32_t s = 0; s < n_ranks; s++)
    for (int32_t d = 0; d < n_ranks; d++, bytes++)
      if (*bytes > 0) /* at most n of them */
        list->data[kept++] = (hec_transfer){.bytes = *bytes, .source = s, .destination = d, .item = -1, .after = -1};
  list->n = kept;
}

static void put_in_order(hec_transfer_list *list, int32_t n_ranks, bool per_item) {
  enum { PAIRS_PER_TRANSFER_MAX = 8 };
  size_t n = list->n;
  if (is_in_order(list)) {
    if (!per_item)
      merge_pairs(list);
    return;
  }
  if (!per_item && (size_t)n_ranks * (size_t)n_ranks <= PAIRS_PER_TRANSFER_MAX * n) {
    tabulate(list, n_ranks);
    return;
  }
  HEC_RESERVE(list->data, list->capacity, 2 * n + (size_t)n_ranks + 1);
  hec_transfer *half = list->data + n, *count = list->data + 2 * n;
  sort_by(list->data, half, n, count, n_ranks, false);
  sort_by(half, list->data, n, count, n_ranks, true);
  if (!per_item)
    merge_pairs(list);
}

void hec_collective_finish(hec_collective_plan *plan, int32_t n_ranks) {
  int32_t kept = 0;
  for (int32_t k = 0; k < plan->n_stages; k++) {
    if (plan->stage[k].n == 0)
      continue;
    hec_transfer_list stage = plan->stage[k], relayed = plan->relayed[k];
    plan->stage[k] = plan->stage[kept];
    plan->relayed[k] = plan->relayed[kept];
    plan->stage[kept] = stage;
    plan->relayed[kept] = relayed;
    put_in_order(&plan->stage[kept++], n_ranks, plan->per_item);
  }
  plan->n_stages = kept;
}
