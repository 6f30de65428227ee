/* Closed-form time of one MoE layer under local-first dispatch (reference hecate.md 6.2). It is kept such that the
 * question "what if this expert were also there" costs one pass over the links.
 *
 *   T_a2a  = max over links l of tokens(l) * token_bytes / bandwidth(l)       (latencies are the same for every plan)
 *   T_comp = max over ranks r of tokens(r) * (flops / rate(r) + bytes_per_row / hbm(r))  (linear part of the expert law)
 *   T      = 2 T_a2a + T_comp  forward,  plus 2 T_a2a + 2 T_comp  backward when training
 *
 * Links and ranks are cells of one vector. tokens(cell) is the sum of the experts' parts, all whole numbers below 2^53.
 * So taking a part out and putting another in is exact: an incremental time equals the one computed from nothing.
 *
 * The linear part leaves out what an expert costs on a rank beside its rows. That is the start of its GEMMs, a tile
 * that is not full, and its weights from memory. hec_layer_model_work_s has all of it, for sets of copies that are
 * compared with none. */
#pragma once
#include "runtime/plan/plan.h"
#include "runtime/plan/problem.h"
#include "runtime/plan/rank_links.h"

enum { HEC_LAYER_BUSIEST = 8 };

/* Sources begin .. end-1 cross `link` on their way to a rank. */
typedef struct {
  int32_t link, begin, end;
} hec_layer_run;

/* Links that are in all routes of a rank. */
typedef struct {
  const int32_t *link;
  int32_t n;
} hec_layer_way;

typedef struct {
  const hec_problem *problem;
  const hec_rank_links *links;
  int32_t n_cells; /* links, then ranks, each padded to a multiple of 4 */
  int32_t rank_at; /* cell of rank 0 */
  double *cell_s;  /* [n_cells] seconds per assignment over that link or on that rank; 0 in the padding */
  double a2a_weight, compute_weight; /* how often T_a2a and T_comp occur */
  hec_work_rate *rate;               /* [2 * n_ranks] of an expert, then of its backward */
  int32_t *run_at;                   /* [n_ranks + 1] into run */
  hec_layer_run *run;                /* by destination, then link, then source */
  hec_layer_way *head, *tail;        /* [2 * n_ranks] of a rank's routes: inside its node, then to and from others */
  bool middles;                      /* some route has more than its head and tail */
  double *more;                      /* scratch [2 * n_ranks + 2], zero between uses */
  double *before;                    /* scratch [n_ranks + 1] assignments of the sources before each */
  double *tokens;                    /* [n_cells] of the layer */
  double *part;                      /* [n_experts * n_cells] what each expert adds to it, where made */
  double *rest;                      /* [n_cells] tokens without those of rest_of */
  int32_t rest_of;                   /* expert; -1: not made */
  bool *made;                        /* [n_experts] of an expert on one rank only when asked for */
  double *arrive;                    /* [n_experts * padded ranks] assignments of each source */
  int32_t *only;                     /* [n_experts] the one rank that computes the expert; -1: several may */
  double *total;                     /* [n_experts] its assignments */
  double *to;                        /* scratch [n_ranks * padded ranks] of each source to experts of one rank only */
  double *work;                      /* scratch [2 * n_ranks] */
  int32_t busiest_links[HEC_LAYER_BUSIEST], busiest_ranks[HEC_LAYER_BUSIEST]; /* cells, when last asked for */
  int32_t *busiest_run; /* [n_ranks] first run of the busiest link to that rank */
} hec_layer_model;

/* The two maxima. */
typedef struct {
  double a2a_s, compute_s;
} hec_layer_time;

hec_layer_model hec_layer_model_new(hec_arena *arena, const hec_problem *problem, const hec_rank_links *links);

/* Takes the loads, counts[source * n_experts + expert], and the plan of a layer (whole homes). `holders` is scratch
 * [2 * n_ranks]. O(sources * (experts + ranks * route) + copied experts * (sources * route + cells)). */
void hec_layer_model_set(hec_layer_model *model, const hec_plan *plan, int32_t layer, const uint32_t *counts,
                         int32_t *holders);
/* The same in two steps: the loads that stand in the model, and the plan. Every source sends hec_even_share of the expert's
 * `assignments`; 0 <= turn < n_ranks. Returns what each source sends: [n_ranks]. O(ranks). */
const double *hec_layer_model_send(hec_layer_model *model, int32_t expert, uint32_t assignments, int32_t turn);
void hec_layer_model_place(hec_layer_model *model, const hec_plan *plan, int32_t layer, int32_t *holders);

/* What `expert` adds to every cell when the ranks `holders` (ascending, different) hold it: out[n_cells]. */
void hec_layer_model_part(const hec_layer_model *model, int32_t expert, const int32_t *holders, int32_t n, double *out);

hec_layer_time hec_layer_model_time(const hec_layer_model *model);
/* No less than 0 and no more than the times of any plan in which `expert` adds something else than now. It is what the
 * n <= HEC_LAYER_BUSIEST busiest links and ranks, as last asked for, keep without it. */
void hec_layer_model_busiest(hec_layer_model *model);
hec_layer_time hec_layer_model_min(const hec_layer_model *model, int32_t expert, int32_t n);
/* The experts without which the busiest link or rank, as last asked for, may take less, ascending: their number.
 * Without any other the layer takes as long as it does. */
int32_t hec_layer_model_movers(const hec_layer_model *model, int32_t *experts);
/* The times if `expert` added `part` instead of what it adds now. NULL: every rank holds it, so nothing travels. */
hec_layer_time hec_layer_model_time_with(hec_layer_model *model, int32_t expert, const double *part);
void hec_layer_model_replace(hec_layer_model *model, int32_t expert, const double *part); /* NULL: likewise */

/* Seconds of `tokens` assignments of one expert on a rank by the law of computing, forward or backward. */
static inline double hec_layer_model_expert_s(const hec_layer_model *model, int32_t rank, bool backward,
                                              double tokens) {
  return hec_work_rate_s(&model->rate[backward ? model->problem->n_ranks + rank : rank], tokens);
}
/* The busiest rank's experts by the law, forward and backward: O(experts + copied experts * ranks). */
void hec_layer_model_work_s(const hec_layer_model *model, double work_s[2]);

static inline double hec_layer_model_total(const hec_layer_model *model, hec_layer_time time) {
  return model->a2a_weight * time.a2a_s + model->compute_weight * time.compute_s;
}
