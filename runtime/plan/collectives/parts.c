/* Sparse collectives in parts. An item is cut into as many parts as its owner's node has ranks. Part j travels over the
 * j-th rank there and the j-th rank of every node that receives. So all ports and all NICs of both nodes carry it.
 *
 *   gather   stage 1   owner -> rank j of its node: part j
 *            stage 2   rank j -> rank j of every other node with receivers; rank j -> the receivers of its own node
 *            stage 3   rank j of the other nodes -> the receivers there
 *   scatter  the same backwards; who passes a part on first adds up what arrives of it, and its own gradient
 *
 * With G ranks a node and N nodes that receive, the owner's port sends one item instead of as many as there are
 * receivers. Each of the G NICs sends N/G items instead of one NIC N. Ranks that pass a part on need not hold the item:
 * they keep the part until the last stage (hec_collective_plan.relayed). A node with fewer than G ranks takes part j at
 * rank j mod their number.
 *
 * An item with one receiver, in its own node, goes there directly. Slices (FSDP) are spread already, and where ranks may not
 * pass on what they do not hold this is `two_level`. O(items * (receivers * G + nodes * G)). */
#include "runtime/plan/collectives/lower.h"
#include "runtime/plan/problem.h"

typedef struct {
  const hec_problem *problem;
  const hec_sparse *sparse;
  hec_collective_plan *out;
  bool scatter;
  int32_t n_parts;
} cut;

/* Who has part j in the node, of the owner's group. */
static int32_t place_of(const cut *c, int32_t owner, int32_t node, int32_t j) {
  int32_t first = node * c->problem->cluster->devices_per_node, end = hec_problem_node_end(c->problem, node);
  int32_t width = c->sparse->width > 0 ? c->sparse->width : c->problem->n_ranks;
  int32_t group = owner / width * width, group_end = group + width;
  first = first > group ? first : group;
  end = end < group_end ? end : group_end;
  return first + j % (end - first);
}

static bool receives(const hec_sparse_run *run, int32_t rank) {
  for (int32_t i = 0; i < run->n_receivers && run->receiver[i] <= rank; i++)
    if (run->receiver[i] == rank)
      return true;
  return false;
}

/* Part j of the run, as `run` with its bytes. */
static hec_sparse_run part_of(const cut *c, const hec_sparse_run *run, int32_t j) {
  hec_sparse_run part = *run;
  part.slice = j;
  part.bytes = (run->end - run->first) * hec_part_bytes(c->sparse->bytes, c->sparse->bytes_per_param, j, c->n_parts);
  return part;
}

/* Stages are counted as of a gather. */
static void send(const cut *c, const hec_sparse_run *part, int32_t stage, int32_t source, int32_t destination) {
  if (source == destination || part->bytes == 0)
    return;
  hec_transfer_list_add(&c->out->stage[c->scatter ? 2 - stage : stage],
                        (hec_transfer){.bytes = part->bytes,
                                       .source = c->scatter ? destination : source,
                                       .destination = c->scatter ? source : destination,
                                       .item = c->sparse->expert[part->first] * c->n_parts + part->slice,
                                       .after = -1});
}

/* `rank` has the part from `stage` of a gather on, and until then of a scatter. Where it holds none of the items, and
 * some bytes pass, it keeps them for the others. */
static void relay(const cut *c, const hec_sparse_run *part, int32_t stage, int32_t rank) {
  if (rank == part->owner || part->bytes == 0 || receives(part, rank))
    return;
  for (int32_t i = part->first; i < part->end; i++)
    hec_transfer_list_add(&c->out->relayed[c->scatter ? 1 - stage : stage],
                          (hec_transfer){.bytes = part->bytes / (part->end - part->first),
                                         .source = rank,
                                         .destination = rank,
                                         .item = c->sparse->expert[i] * c->n_parts + part->slice,
                                         .after = -1});
}

static void send_part(const cut *c, const hec_sparse_run *run, int32_t j) {
  hec_sparse_run part = part_of(c, run, j);
  int32_t home = hec_problem_node(c->problem, run->owner), spread = place_of(c, run->owner, home, j);
  if (run->n_receivers == 1 && hec_problem_node(c->problem, run->receiver[0]) == home)
    spread = run->owner;
  send(c, &part, 0, run->owner, spread);
  relay(c, &part, 0, spread);
  for (int32_t i = 0; i < run->n_receivers;) {
    hec_node_run node = hec_node_run_at(c->problem, run, i);
    bool away = node.node != home;
    int32_t at = away ? place_of(c, run->owner, node.node, j) : spread;
    if (away) {
      send(c, &part, 1, spread, at);
      relay(c, &part, 1, at);
    }
    for (i = node.first; i < node.end; i++)
      send(c, &part, away ? 2 : 1, at, run->receiver[i]);
  }
}

static void lower(const hec_problem *problem, const hec_sparse *sparse, hec_collective_plan *out, bool scatter) {
  int32_t g =
      problem->cluster->devices_per_node < problem->n_ranks ? problem->cluster->devices_per_node : problem->n_ranks;
  if (!sparse->relays || sparse->n_slices > 1 || g == 1) {
    (scatter ? hec_collective_two_level_scatter : hec_collective_two_level_gather)(problem, sparse, out);
    return;
  }
  cut c = {problem, sparse, out, scatter, g};
  hec_collective_begin(out, sparse, 3);
  out->n_parts = g;
  for (int32_t i = 0; i < sparse->n_items;) {
    hec_sparse_run run = hec_sparse_run_at(sparse, i, 0, out->per_item);
    for (int32_t j = 0; j < g && run.n_receivers > 0; j++)
      send_part(&c, &run, j);
    i = run.end;
  }
  hec_collective_finish(out, problem->n_ranks);
}

static void gather(const hec_problem *problem, const hec_sparse *sparse, hec_collective_plan *out) {
  lower(problem, sparse, out, false);
}

static void scatter(const hec_problem *problem, const hec_sparse *sparse, hec_collective_plan *out) {
  lower(problem, sparse, out, true);
}

const hec_collective hec_collective_parts = {
    .name = "parts",
    .summary = "in parts over all ranks and NICs of both nodes; on request",
    .source = "this project; scatter and all-gather broadcast (van de Geijn), over nodes",
    .n_stages = 3,
    .relays = true,
    .gather = gather,
    .scatter = scatter,
};
