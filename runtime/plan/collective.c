/* The table of sparse collectives and the choice among its rows. */
#include "runtime/plan/collective.h"

#include "runtime/base/table.h"
#include "runtime/plan/problem.h"

#include <stdlib.h>
#include <string.h>

#define ROW(name) &hec_collective_##name,
const hec_collective *const hec_collectives[] = {HEC_COLLECTIVE_LIST(ROW) NULL};
#undef ROW

HEC_TABLE_OF(hec_collective);
const hec_collective *hec_collective_find(const char *name) {
  return hec_table_find(hec_collectives, name);
}

void hec_collective_plan_free(hec_collective_plan *plan) {
  for (int32_t k = 0; k < HEC_COLLECTIVE_STAGES_MAX; k++) {
    free(plan->stage[k].data);
    free(plan->relayed[k].data);
    plan->stage[k] = plan->relayed[k] = (hec_transfer_list){0};
  }
  plan->n_stages = 0;
}

/* An item of the expert with nobody in it yet: its owners, for the group of `rank`. */
static void open_item(hec_sparse *sparse, const hec_plan *plan, int32_t layer, int32_t expert, int32_t rank) {
  int32_t *owner = sparse->owner + (size_t)sparse->n_items * (size_t)sparse->n_slices;
  size_t row = (size_t)layer * (size_t)plan->n_experts + (size_t)expert;
  sparse->expert[sparse->n_items] = expert;
  if (plan->n_slices == 1)
    owner[0] = hec_plan_keeper(plan, layer, expert, rank);
  else
    memcpy(owner, plan->home + row * (size_t)plan->n_slices, (size_t)plan->n_slices * sizeof *owner);
}

static void add_guests(hec_sparse *sparse, const hec_plan *plan, int32_t layer, int32_t expert, hec_guest_choice choice,
                       const uint8_t *mark) {
  hec_copies copies = hec_plan_copies(plan, layer, expert);
  int32_t first = sparse->receiver_at[sparse->n_items], at = first, group = -1;
  for (int32_t i = 0; i < copies.n; i++) {
    int32_t rank = copies.rank[i];
    bool marked = choice != HEC_GUESTS_ANY && mark[(size_t)expert * (size_t)plan->n_ranks + (size_t)rank];
    if (copies.kind[i] != HEC_COPY_GUEST || (choice != HEC_GUESTS_ANY && marked != (choice == HEC_GUESTS_MARKED)))
      continue;
    if (group != rank / plan->width) {
      if (at > first)
        sparse->receiver_at[++sparse->n_items] = first = at;
      group = rank / plan->width;
      open_item(sparse, plan, layer, expert, rank);
    }
    bool kept = plan->n_slices == 1 && rank == sparse->owner[sparse->n_items]; /* slices: a home needs the others too */
    if (!kept && (at == first || sparse->receiver[at - 1] != rank))
      sparse->receiver[at++] = rank;
  }
  if (at > first)
    sparse->receiver_at[++sparse->n_items] = at;
}

void hec_sparse_guests(hec_sparse *sparse, const hec_plan *plan, int32_t layer, hec_guest_choice choice,
                       const uint8_t *mark) {
  sparse->n_items = 0;
  sparse->n_slices = plan->n_slices;
  sparse->width = plan->width;
  sparse->receiver_at[0] = 0;
  for (int32_t e = 0; e < plan->n_experts; e++)
    add_guests(sparse, plan, layer, e, choice, mark);
}

double hec_collective_cost(hec_link_cost *cost, const hec_collective_plan *plan) {
  double seconds = 0;
  for (int32_t k = 0; k < plan->n_stages; k++)
    seconds += hec_link_cost_exchange(cost, plan->stage[k].data, (int32_t)plan->stage[k].n, false, plan->n_chunks);
  return seconds;
}

typedef void lower_function(const hec_problem *, const hec_sparse *, hec_collective_plan *);

static lower_function *lower_of(const hec_collective *row, bool scatter) {
  return scatter ? row->scatter : row->gather;
}

/* The row may not serve the request, or an earlier one lowers in the very same way and wins the tie: no need to look. */
static bool passed_over(int32_t row, const hec_sparse *sparse, bool scatter) {
  if (hec_collectives[row]->relays && !sparse->relays)
    return true;
  if (hec_collectives[row]->whole && !scatter && sparse->n_slices > 1)
    return true;
  for (int32_t i = 0; i < row; i++)
    if (lower_of(hec_collectives[i], scatter) == lower_of(hec_collectives[row], scatter))
      return true;
  return false;
}

const hec_collective *hec_collective_choose(hec_link_cost *cost, const hec_problem *problem, const hec_sparse *sparse,
                                            bool scatter, const hec_collective *forced, hec_collective_plan *out,
                                            hec_collective_plan *scratch) {
  scratch->per_item = out->per_item;
  if (!forced && sparse->n_items == 0)
    forced = hec_collectives[0];
  if (forced) {
    lower_of(forced, scatter)(problem, sparse, out);
    return forced;
  }
  const hec_collective *best = NULL;
  double best_s = 0;
  for (int32_t i = 0; hec_collectives[i]; i++) {
    if (passed_over(i, sparse, scatter))
      continue;
    lower_of(hec_collectives[i], scatter)(problem, sparse, scratch);
    double seconds = hec_collective_cost(cost, scratch);
    if (best && seconds >= best_s)
      continue;
    best = hec_collectives[i];
    best_s = seconds;
    hec_collective_plan cheaper = *scratch;
    *scratch = *out;
    *out = cheaper;
  }
  return best;
}
