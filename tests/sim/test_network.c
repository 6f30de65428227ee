/* Laws against the links. Under max_min and nccl_rounds no link carries more than its capacity in any window of time.
 * One exchange is never faster than its busiest port and the longest latency allow. */
#include "tests/sim/sim_case.h"
#include "tests/support/random_problem.h"
#include "tests/support/test.h"

#include <stdlib.h>
#include <string.h>

HEC_TEST_ARENA(arena)

/* A transfer on a link: all of its bytes cross it between first and last. */
typedef struct {
  int64_t first, last;
  double bytes;
} crossing;

static int by_last(const void *a, const void *b) {
  const crossing *x = a, *y = b;
  return (x->last > y->last) - (x->last < y->last);
}

/* For every begin: the bytes of crossings inside [begin, end] never exceed the link's rate times the window. */
static void check_windows(const hec_test_step *step, const hec_link *link, crossing *c, int32_t n) {
  qsort(c, (size_t)n, sizeof *c, by_last);
  for (int32_t b = 0; b < n; b++) {
    double bytes = 0;
    for (int32_t i = 0; i < n; i++) {
      if (c[i].first < c[b].first)
        continue;
      bytes += c[i].bytes;
      double room = link->bandwidth * (double)(c[i].last - c[b].first + 2) * 1e-12; /* ends are rounded */
      if (bytes > room * (1 + 1e-9)) /* a million windows: an assertion each would write a million lines */
        ck_abort_msg("%.17g bytes in %lld ps, room for %.17g: %s", bytes, (long long)(c[i].last - c[b].first), room,
                     hec_test_step_name(step));
    }
  }
}

static int64_t larger(int64_t a, int64_t b) {
  return a > b ? a : b;
}

typedef struct {
  const hec_law *law;
  int64_t checked;
} capacity_of;

static void visit_capacity(const hec_test_step *step, void *context) {
  capacity_of *of = context;
  if (step->iteration != 1)
    return;
  const hec_program *program = step->program;
  const hec_cluster *cluster = step->c->problem.cluster;
  int32_t n_ranks = program->n_ranks;
  hec_arena_mark mark = hec_arena_save(&arena);
  hec_problem problem = step->c->problem;
  hec_cluster narrow = *cluster;
  narrow.p2p = (hec_p2p){.channels = 2, .channels_per_peer = 1, .batch = 1}; /* so that rounds wait for each other */
  problem.cluster = &narrow;
  hec_timeline t = hec_test_simulate(&problem, program, of->law, (hec_sim_options){0});
  int32_t *n = HEC_NEW(&arena, int32_t, cluster->n_links);
  size_t room = 0;
  for (size_t i = 0; i < program->n_ops; i++)
    room += program->ops[i].kind == HEC_OP_EXCHANGE ? (size_t)program->ops[i].exchange.n_transfers : 0;
  crossing *all = HEC_NEW(&arena, crossing, room * (size_t)cluster->n_links);
  for (size_t i = 0; i < program->n_ops; i++) {
    const hec_op *op = &program->ops[i];
    for (int32_t k = 0; op->kind == HEC_OP_EXCHANGE && k < op->exchange.n_transfers; k++) {
      const hec_transfer *x = &program->transfers[op->exchange.transfer_at + k];
      int32_t s = op->reverse ? x->destination : x->source, d = op->reverse ? x->source : x->destination;
      size_t at_s = i * (size_t)n_ranks + (size_t)s, at_d = i * (size_t)n_ranks + (size_t)d;
      crossing here = {.bytes = (double)x->bytes,
                       .first = larger(t.begin_ps[at_s], t.begin_ps[at_d]) + hec_cluster_latency_ps(cluster, s, d),
                       .last = t.end_ps[at_s] < t.end_ps[at_d] ? t.end_ps[at_s] : t.end_ps[at_d]};
      ck_assert_msg(here.last >= here.first, "%s", hec_test_step_name(step));
      const int32_t *links;
      int32_t n_links = hec_cluster_route(cluster, s, d, &links);
      for (int32_t l = 0; l < n_links; l++)
        all[(size_t)links[l] * room + (size_t)n[links[l]]++] = here;
    }
  }
  for (int32_t l = 0; l < cluster->n_links; l++) {
    check_windows(step, &cluster->links[l], all + (size_t)l * room, n[l]);
    of->checked += n[l];
  }
  hec_timeline_free(&t);
  hec_arena_rewind(&arena, mark);
}

HEC_TEST_LOOP(capacity_holds, hec_test_cases(24)) {
  uint64_t seed = 101 + (uint64_t)_i;
  capacity_of context = {.law = _i % 2 ? &hec_law_nccl_rounds : &hec_law_max_min};
  const hec_test_case *c = hec_test_random_case(&arena, &seed, (hec_test_wish){.ranks_max = 8});
  hec_test_each(c, false, visit_capacity, &context);
  ck_assert(context.checked > 0 || c->problem.n_ranks == 1);
}

/* Each exchange of a random program alone, everybody posting at 0. */
static void visit_alone(const hec_test_step *step, void *context) {
  (void)context;
  if (step->iteration > 0)
    return;
  HEC_SCOPED(hec_program) alone = {0};
  for (size_t i = 0; i < step->program->n_ops; i++) {
    const hec_op *op = &step->program->ops[i];
    bool exchange =
        op->kind == HEC_OP_EXCHANGE && op->exchange.n_chunks == 1; /* chains: the closed form adds up hops */
    bool ring = op->kind == HEC_OP_ALLREDUCE && step->c->problem.cluster->nics == 1; /* else ports share rings less */
    if ((!exchange && !ring) || (op->degree > 1 && op->chunk > 0))                   /* chunks are alike */
      continue;
    hec_program_clear(&alone, step->program->n_ranks);
    hec_op copy = *op;
    if (exchange) {
      size_t n = (size_t)op->exchange.n_transfers;
      copy.exchange.transfer_at = 0;
      copy.exchange.part_at = -1;
      HEC_RESERVE(alone.transfers, alone.transfers_capacity, n + 1);
      memcpy(alone.transfers, step->program->transfers + op->exchange.transfer_at, n * sizeof *alone.transfers);
      alone.n_transfers = n;
    }
    (void)hec_program_add(&alone, copy, NULL, 0);
    int64_t end[2];
    for (int law = 0; law < 2; law++)
      end[law] = hec_test_end_ps(&step->c->problem, &alone, law ? &hec_law_max_min : &hec_law_alpha_beta,
                                 (hec_sim_options){0});
    /* one latency of the closed form may belong to another transfer than its busiest port's */
    int64_t slack = 2;
    if (op->kind == HEC_OP_EXCHANGE) {
      int64_t min = INT64_MAX, max = 0;
      for (int32_t k = 0; k < op->exchange.n_transfers; k++) {
        const hec_transfer *x = &alone.transfers[k];
        int64_t latency = op->reverse ? hec_cluster_latency_ps(step->c->problem.cluster, x->destination, x->source)
                                      : hec_cluster_latency_ps(step->c->problem.cluster, x->source, x->destination);
        min = latency < min ? latency : min;
        max = larger(max, latency);
      }
      slack += max - min;
    }
    ck_assert_msg(end[0] <= end[1] + slack, "%s alone: alpha_beta %lld ps, max_min %lld ps: %s",
                  hec_role_name[op->role], (long long)end[0], (long long)end[1], hec_test_step_name(step));
  }
}

HEC_TEST_LOOP(closed_form_is_a_bound, hec_test_cases(24)) {
  uint64_t seed = 301 + (uint64_t)_i;
  hec_test_each(hec_test_random_case(&arena, &seed, (hec_test_wish){0}), false, visit_alone, NULL);
}
