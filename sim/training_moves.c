/* See training_moves.h. */
#include "sim/training_moves.h"

#include "models/link_cost.h"
#include "runtime/plan/replicas.h"

#include <stdlib.h>
#include <string.h>

hec_training_moves hec_training_moves_new(const hec_policy_run *run, const hec_training *training, hec_arena *arena) {
  const hec_problem *p = run->problem;
  size_t ranks = (size_t)p->n_ranks, experts = (size_t)p->n_experts, slices = (size_t)run->plan.n_slices;
  size_t items = experts * (ranks / (size_t)run->plan.width);
  hec_training_moves moves = {.sparse = {.expert = HEC_NEW(arena, int32_t, items),
                                         .owner = HEC_NEW(arena, int32_t, items * slices),
                                         .receiver_at = HEC_NEW(arena, int32_t, items + 1),
                                         .receiver = HEC_NEW(arena, int32_t, experts * ranks)},
                              .before = hec_plan_new(arena, p, run->plan.n_slices),
                              .bytes = HEC_NEW(arena, int64_t, ranks * ranks),
                              .keeper = HEC_NEW(arena, int32_t, ranks),
                              .share = 1,
                              .kept = 1,
                              .grad_bytes = p->bytes.expert_grad,
                              .moved = *p};
  hec_plan_assign(&moves.before, &run->plan);
  if (training) {
    moves.share = 1 / (double)training->layout.etp;
    moves.grad_bytes = (double)training->recipe.grads * hec_moe_expert_params(p->moe);
    moves.added_s = 3 * training->constants.in_step * training->laws->add.byte_s; /* two read, one written */
    moves.shared = training->recipe.zero > 0;
    moves.kept = training->recipe.zero >= 3 ? 1 / (double)training->layout.edp : 1;
    moves.moved.bytes.expert_param *= moves.kept;
    moves.moved.bytes.expert_optimizer /= moves.shared ? training->layout.edp : 1;
  }
  return moves;
}

void hec_training_moves_free(hec_training_moves *moves) {
  hec_collective_plan_free(&moves->plan);
  hec_collective_plan_free(&moves->other);
  free(moves->list.data);
}

/* Of the rank that has most to add up. */
static double added_s(const hec_training_moves *moves, const hec_problem *p, const hec_transfer_list *list) {
  int64_t max = 0;
  for (size_t i = 0; i < list->n; i++)
    moves->bytes[list->data[i].destination] += list->data[i].bytes;
  for (int32_t r = 0; r < p->n_ranks; r++) {
    max = moves->bytes[r] > max ? moves->bytes[r] : max;
    moves->bytes[r] = 0;
  }
  return moves->added_s * (double)max;
}

/* Experts in slices come from every rank: as an all-gather of as many as the rank with most guests takes. */
static double sliced_s(hec_training_moves *moves, const hec_problem *p, double bytes) {
  const hec_sparse *sparse = &moves->sparse;
  int64_t max = 0;
  memset(moves->bytes, 0, (size_t)p->n_ranks * sizeof *moves->bytes);
  for (int32_t i = 0; i < sparse->receiver_at[sparse->n_items]; i++) {
    int64_t n = ++moves->bytes[sparse->receiver[i]];
    max = n > max ? n : max;
  }
  memset(moves->bytes, 0, (size_t)p->n_ranks * sizeof *moves->bytes);
  return hec_link_cost_allgather(p->cluster, p->n_ranks, bytes * (double)max / (double)p->n_ranks);
}

/* Every rank keeps a slice of every expert, and adds up what all its receivers bring. */
static double sliced_added_s(const hec_training_moves *moves, const hec_problem *p) {
  double received = (double)moves->sparse.receiver_at[moves->sparse.n_items];
  return moves->added_s * moves->grad_bytes * received / (double)p->n_ranks;
}

double hec_training_gather_s(hec_training_moves *moves, hec_policy_run *run, int32_t layer, bool scatter) {
  const hec_problem *p = run->problem;
  double bytes = scatter ? moves->grad_bytes : p->bytes.expert_param, s = 0;
  hec_sparse_guests(&moves->sparse, &run->plan, layer, HEC_GUESTS_ANY, NULL);
  if (moves->sparse.n_items == 0)
    return 0;
  if (run->plan.n_slices > 1)
    return moves->share * (sliced_s(moves, p, bytes) + (scatter ? sliced_added_s(moves, p) : 0));
  moves->sparse.bytes = (int64_t)bytes;
  moves->sparse.bytes_per_param = bytes / hec_moe_expert_params(p->moe);
  (void)hec_collective_choose(&run->link, p, &moves->sparse, scatter, NULL, &moves->plan, &moves->other);
  for (int32_t k = 0; scatter && k < moves->plan.n_stages; k++)
    s += added_s(moves, p, &moves->plan.stage[k]);
  return moves->share * (s + hec_collective_cost(&run->link, &moves->plan));
}

/* ---- Copies that stay ---- */

typedef struct {
  hec_training_moves *moves;
  int32_t n_ranks;
  int64_t bytes; /* of an expert */
  double bytes_per_param;
} replica_pieces;

static void add_piece(void *context, hec_replica_piece piece) {
  const replica_pieces *of = context;
  of->moves->bytes[(size_t)piece.source * (size_t)of->n_ranks + (size_t)piece.destination] +=
      hec_part_bytes(of->bytes, of->bytes_per_param, piece.part, piece.n_parts);
}

/* One step of replicas.h for all experts of a layer, as one transfer of each pair. */
static void list_pieces(hec_training_moves *moves, const hec_problem *p, int32_t layer, hec_replica_step step,
                        double bytes) {
  replica_pieces of = {moves, p->n_ranks, (int64_t)bytes, bytes / hec_moe_expert_params(p->moe)};
  for (int32_t e = 0; e < p->n_experts; e++) {
    int32_t n = hec_replica_keepers(&moves->before, layer, e, moves->keeper);
    if (n > 1)
      hec_replica_pieces(p, e, moves->keeper, n, step, add_piece, &of);
  }
  moves->list.n = 0;
  for (int32_t i = 0; i < p->n_ranks * p->n_ranks; i++) {
    if (moves->bytes[i] > 0)
      hec_transfer_list_add(&moves->list, (hec_transfer){.bytes = moves->bytes[i],
                                                         .source = i / p->n_ranks,
                                                         .destination = i % p->n_ranks,
                                                         .item = -1,
                                                         .after = -1});
    moves->bytes[i] = 0;
  }
}

static double exchange_s(hec_training_moves *moves, hec_policy_run *run, bool back) {
  return hec_link_cost_exchange(&run->link, moves->list.data, (int32_t)moves->list.n, back, 1);
}

double hec_training_replicas_s(hec_training_moves *moves, hec_policy_run *run) {
  static const hec_replica_step steps[] = {HEC_REPLICA_INSIDE, HEC_REPLICA_BETWEEN};
  const hec_problem *p = run->problem;
  double s = 0, back = moves->shared ? p->bytes.expert_param : moves->grad_bytes;
  for (int32_t l = 0; run->plan.n_slices == 1 && l < p->n_layers; l++)
    for (int k = 0; k < 2; k++) {
      list_pieces(moves, p, l, steps[k], moves->grad_bytes);
      s += exchange_s(moves, run, false) + added_s(moves, p, &moves->list);
      list_pieces(moves, p, l, steps[k], back);
      s += exchange_s(moves, run, true);
    }
  return moves->share * moves->kept * s;
}

double hec_training_migration_s(hec_training_moves *moves, hec_policy_run *run) {
  double s = 0;
  if (run->plan.version == moves->before.version)
    return 0;
  for (int32_t l = 0; l < run->plan.n_layers; l++) {
    moves->list.n = 0;
    hec_plan_migration(&moves->before, &run->plan, &moves->moved, l, moves->bytes, &moves->list);
    s += hec_link_cost_exchange(&run->link, moves->list.data, (int32_t)moves->list.n, false, 1);
  }
  hec_plan_assign(&moves->before, &run->plan);
  return moves->share * s;
}
