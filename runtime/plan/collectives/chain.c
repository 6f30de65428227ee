/* Chained sparse gather: an item visits the nodes that receive it in the order home+1, home+2, ... (mod N) and inside
 * each node its receivers from the entry on in cyclic order. Each rank forwards chunk by chunk what it is still
 * receiving.
 *
 *   owner -> entry(n1) -> entry(n2) -> ...        every node sends and receives an item at most once (hecate.md 14)
 *            entry(n1) -> next -> next ...        and so does every port inside a node
 *
 * One exchange whose transfers name the one they forward. Chunks of 1 MiB, at least 2 (else nothing overlaps) and at
 * most 16. A chunk costs a latency per hop. With 16 the pipeline's fill is a sixteenth of the item per hop. The
 * scatter is two_level's: partial sums would have to be added on the way, and an exchange never reduces. O(items *
 * receivers). */
#include "runtime/plan/collectives/lower.h"
#include "runtime/plan/problem.h"

enum { CHUNKS_MIN = 2, CHUNKS_MAX = 16 };
static const int64_t chunk_bytes = 1 << 20;

static int32_t chunks_of(int64_t bytes) {
  int64_t n = (bytes + chunk_bytes - 1) / chunk_bytes;
  return n < CHUNKS_MIN ? CHUNKS_MIN : n > CHUNKS_MAX ? CHUNKS_MAX : (int32_t)n;
}

/* Receivers start, start+1, ... (cyclic within the node), the first sent by `source` out of transfer `after`, each next
 * one by the one before it. Returns the first hop. */
static int32_t chain_node(hec_transfer_list *list, const hec_sparse *sparse, const hec_sparse_run *run,
                          hec_node_run node, int32_t start, int32_t source, int32_t after) {
  int32_t first = (int32_t)list->n, at = start;
  do {
    hec_transfer_list_add(list, (hec_transfer){.bytes = run->bytes,
                                               .source = source,
                                               .destination = run->receiver[at],
                                               .item = sparse->expert[run->first] * sparse->n_slices + run->slice,
                                               .after = after});
    after = (int32_t)list->n - 1;
    source = run->receiver[at];
    at = at + 1 < node.end ? at + 1 : node.first;
  } while (at != start);
  return first;
}

static void chain_item(const hec_problem *problem, const hec_sparse *sparse, const hec_sparse_run *run,
                       hec_transfer_list *list) {
  int32_t home = hec_problem_node(problem, run->owner), begin = 0;
  int32_t home_end = hec_problem_node_end(problem, home);
  while (begin < run->n_receivers && run->receiver[begin] < home_end)
    begin++; /* the first receiver on a node after the home node; from there cyclic, the home node last */
  int32_t source = run->owner, after = -1;
  for (int32_t visited = 0; visited < run->n_receivers;) {
    int32_t at = (begin + visited) % run->n_receivers;
    hec_node_run node = hec_node_run_at(problem, run, at);
    int32_t entry = hec_collective_entry(problem, run, node);
    if (node.node == home) {
      chain_node(list, sparse, run, node, entry, run->owner, -1);
    } else {
      after = chain_node(list, sparse, run, node, entry, source, after);
      source = run->receiver[entry];
    }
    visited += node.end - node.first;
  }
}

static void gather(const hec_problem *problem, const hec_sparse *sparse, hec_collective_plan *out) {
  if (sparse->n_slices > 1) {
    hec_collective_direct.gather(problem, sparse, out);
    return;
  }
  hec_collective_begin(out, sparse, 1);
  if (sparse->bytes > 0)
    for (int32_t i = 0; i < sparse->n_items; i++) {
      hec_sparse_run run = hec_sparse_run_at(sparse, i, 0, true);
      chain_item(problem, sparse, &run, &out->stage[0]);
    }
  out->n_stages = out->stage[0].n > 0 ? 1 : 0;
  out->n_chunks = chunks_of(sparse->bytes);
}

const hec_collective hec_collective_chain = {
    .name = "chain",
    .summary = "from node to node and rank to rank, chunk by chunk",
    .source = "pipelined broadcast, reference hecate.md 3.4 and 14",
    .n_stages = 1,
    .whole = true,
    .gather = gather,
    .scatter = hec_collective_two_level_scatter,
};
