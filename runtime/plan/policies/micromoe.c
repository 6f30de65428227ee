/* MicroMoE (arXiv 2511.16947; reference policies.md 4.10). The copies that expert-data parallelism keeps anyway are
 * placed so that they share ranks in many ways, and several expert-parallel groups are one. After every gate the tokens
 * of each expert are split over all its copies such that the busiest rank has least. No weight moves.
 *
 *   placement   R ranks in groups of d. The j-th expert of place p in group 0 stands in group k at place
 *               (p + k o[j]) mod d, o = 0, 1, 2, 4, 8, .. and then what is left: a Cayley graph of the cyclic group, the
 *               same seen from every rank. (Without shifts a rank could only share with its own place elsewhere.)
 *   programme   minimise the busiest rank over all splits, exactly and in whole tokens (min_max.c). It starts from every
 *               group keeping its own tokens, so tokens leave their group only to take load off somebody.
 *   tokens      a copy computes its own rank's tokens first, then its group's by source, then anybody's by source
 *               ("local replica first, then remote in order"; own group before other groups is inferred)
 *
 * d: the fewest ranks whose slots hold all experts. A rank has 2 ceil(E / ep) slots or --slots. So there are two
 * copies of everything where ranks can be halved (the degree is the user's in the paper). With one group there is
 * nothing to split and this is `ep`. The placement without history only. The paper's replacement from a forecast
 * (greedy replica counts, Monte Carlo placement) is not built, nor the communication term of its objective. Copies are
 * resident: gradient all-reduce, optimizer state each. O(R E) for the sums, min_max.c with E R / d places, O(R + R /
 * d) per expert to write them. */
#include "runtime/plan/planners/min_max.h"
#include "runtime/plan/policy.h"
#include "runtime/plan/problem.h"
#include "runtime/plan/quota.h"

#include <string.h>

typedef struct {
  int32_t group_size, n_groups;
  hec_min_max split; /* place k of an expert: its copy in group k */
  uint64_t *own;     /* [n_groups * n_experts] tokens of the group's own sources */
  uint64_t *spare;   /* [n_groups] of one expert: what the copy computes for other groups, not yet given */
  int32_t *holder;   /* [n_experts * n_groups] rank of the copy */
} micromoe;

static int32_t group_size(const hec_problem *problem) {
  int32_t slots = problem->slots, d = 1;
  if (slots == HEC_AUTO)
    slots = 2 * hec_problem_share(problem);
  while (d < problem->ep && (problem->n_ranks % d != 0 || (problem->n_experts + d - 1) / d > slots))
    d++;
  return d;
}

/* o[0..size-1]: each shift once, powers of two first. */
static void list_shifts(int32_t size, int32_t *shift) {
  int32_t n = 0;
  shift[n++] = 0;
  for (int32_t o = 1; o < size; o *= 2)
    shift[n++] = o;
  for (int32_t o = 1; o < size; o++)
    if ((o & (o - 1)) != 0)
      shift[n++] = o;
  HEC_ASSERT(n == size);
}

static int32_t place_of(const hec_problem *problem, int32_t size, int32_t e) {
  return (int32_t)((int64_t)e * size / problem->n_experts);
}

static void list_holders(micromoe *state, const hec_problem *problem, int32_t *shift) {
  int32_t size = state->group_size, n_before = 0; /* experts of the same place before this one */
  list_shifts(size, shift);
  for (int32_t e = 0; e < problem->n_experts; e++) {
    int32_t place = place_of(problem, size, e);
    n_before = e > 0 && place_of(problem, size, e - 1) == place ? n_before + 1 : 0;
    for (int32_t k = 0; k < state->n_groups; k++) {
      int64_t shifted = place + (int64_t)k * shift[n_before % size];
      state->holder[e * state->n_groups + k] = k * size + (int32_t)(shifted % size);
    }
  }
}

static void init(hec_policy_run *run) {
  const hec_problem *problem = run->problem;
  int32_t size = group_size(problem), groups = problem->n_ranks / size;
  micromoe *state = HEC_NEW(run->arena, micromoe, 1);
  *state = (micromoe){
      .group_size = size,
      .n_groups = groups,
      .split = hec_min_max_new(run->arena, problem->n_ranks, problem->n_experts, problem->n_experts * groups),
      .own = HEC_NEW(run->arena, uint64_t, (size_t)problem->n_experts * (size_t)groups),
      .spare = HEC_NEW(run->arena, uint64_t, groups),
      .holder = HEC_NEW(run->arena, int32_t, (size_t)problem->n_experts * (size_t)groups),
  };
  run->state = state;
  list_holders(state, problem, HEC_NEW(run->arena, int32_t, size));
  run->plan.slots = (problem->n_experts + size - 1) / size;
  for (int32_t layer = 0; layer < problem->n_layers; layer++)
    for (int32_t e = 0; e < problem->n_experts; e++) {
      hec_plan_set_home(&run->plan, layer, e, state->holder[e * groups]);
      for (int32_t k = 1; k < groups; k++)
        hec_plan_add_copy(&run->plan, layer, e, state->holder[e * groups + k], HEC_COPY_RESIDENT);
    }
  /* parts of an expert: one of each source in its own group, and a staircase through sources and other groups */
  hec_quota_reserve(&run->plan, run->arena, problem->n_experts * (2 * problem->n_ranks + groups));
}

static void decide(hec_policy_run *run) {
  hec_quota_clear(&run->plan);
}

/* Every group keeps its own tokens; then the optimum. */
static void solve(micromoe *state, const hec_problem *problem, const hec_load *load, int32_t layer) {
  hec_min_max *m = &state->split;
  size_t groups = (size_t)state->n_groups, n = (size_t)problem->n_experts * groups;
  for (int32_t k = 0; k < state->n_groups; k++)
    hec_load_totals(load, layer, k * state->group_size, state->group_size,
                    state->own + (size_t)k * (size_t)problem->n_experts);
  memset(m->load, 0, (size_t)problem->n_ranks * sizeof *m->load);
  for (size_t i = 0; i < n; i++)
    m->tokens[i] = state->own[i % groups * (size_t)problem->n_experts + i / groups];
  memcpy(m->rank, state->holder, n * sizeof *m->rank);
  for (int32_t e = 0; e <= problem->n_experts; e++)
    m->at[e] = e * state->n_groups;
  hec_min_max_solve(m);
}

/* Assignments of the copy's own rank come first, so the other sources of its group have the rest of its tokens. */
typedef struct {
  uint64_t left;  /* tokens of the group's copy for sources of the group other than its rank */
  uint64_t first; /* and for its rank */
} group_share;

static uint64_t own_tokens(const micromoe *state, int32_t e, int32_t k) {
  return state->own[(size_t)k * (size_t)state->split.n_experts + (size_t)e];
}

static group_share own_share(const micromoe *state, const hec_load *load, int32_t layer, int32_t e, int32_t k) {
  size_t i = (size_t)e * (size_t)state->n_groups + (size_t)k;
  uint64_t own = own_tokens(state, e, k), given = state->split.tokens[i];
  uint64_t first = hec_load_row(load, layer, state->holder[i])[e];
  given = given < own ? given : own;
  first = first < given ? first : given;
  return (group_share){.left = given - first, .first = first};
}

/* The quotas of one source: `here` in its own group, the rest wherever there is room, from group *k on. */
static void write_source(micromoe *state, hec_quota_writer *writer, int32_t e, int32_t source, uint32_t n,
                         uint32_t here, int32_t *k) {
  const int32_t *holder = state->holder + (size_t)e * (size_t)state->n_groups;
  int32_t group = source / state->group_size;
  hec_quota own = {source, holder[group], here};
  for (uint32_t rest = n - here; rest > 0;) {
    for (; state->spare[*k] == 0; (*k)++)
      HEC_ASSERT(*k + 1 < state->n_groups);
    if (*k > group && own.tokens > 0) {
      hec_quota_add(writer, e, own);
      own.tokens = 0;
    }
    uint32_t part = rest < state->spare[*k] ? rest : (uint32_t)state->spare[*k];
    hec_quota_add(writer, e, (hec_quota){source, holder[*k], part});
    state->spare[*k] -= part;
    rest -= part;
  }
  hec_quota_add(writer, e, own);
}

static void write_expert(micromoe *state, const hec_load *load, hec_quota_writer *writer, int32_t e) {
  const int32_t *holder = state->holder + (size_t)e * (size_t)state->n_groups;
  int32_t next = 0;
  for (int32_t k = 0; k < state->n_groups; k++) {
    uint64_t given = state->split.tokens[e * state->n_groups + k], own = own_tokens(state, e, k);
    state->spare[k] = given > own ? given - own : 0;
  }
  for (int32_t group = 0; group < state->n_groups; group++) {
    group_share share = own_share(state, load, writer->layer, e, group);
    for (int32_t s = group * state->group_size; s < (group + 1) * state->group_size; s++) {
      uint32_t n = hec_load_row(load, writer->layer, s)[e];
      uint64_t room = s == holder[group] ? share.first : share.left;
      uint32_t here = n < room ? n : (uint32_t)room;
      share.left -= s == holder[group] ? 0 : here;
      if (here == n)
        hec_quota_add(writer, e, (hec_quota){s, holder[group], n});
      else
        write_source(state, writer, e, s, n, here, &next);
    }
  }
}

static void refine(hec_policy_run *run, int32_t layer, const hec_load *load) {
  micromoe *state = run->state;
  const hec_problem *problem = run->problem;
  if (state->n_groups == 1)
    return;
  solve(state, problem, load, layer);
  hec_quota_writer writer = hec_quota_begin(&run->plan, layer);
  for (int32_t e = 0; e < problem->n_experts; e++)
    write_expert(state, load, &writer, e);
  hec_quota_end(&writer);
  run->units = state->split.units + 2 * (uint64_t)problem->n_ranks * (uint64_t)problem->n_experts;
  run->planned = true;
}

static const hec_option options[] = {
    HEC_POLICY_SLOTS(.initial = "2 ceil(experts / ep)", .source = "this project; the user's in the paper"), {0}};

const hec_policy hec_policy_micromoe = {
    .name = "micromoe",
    .fills = {.shares = 2},
    .tried = true,
    .summary = "Every expert has two copies or more. After the gate, a linear programme splits tokens over them.",
    .source = "MicroMoE, arXiv 2511.16947",
    .known = HEC_KNOWN_EXACT,
    .schedule = "serial",
    .dispatch = &hec_dispatch_quota,
    .all_ranks = true,
    .window = 1,
    .options = options,
    .init = init,
    .decide = decide,
    .refine = refine,
};
