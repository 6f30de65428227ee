/* Calibration of FSSDP (reference hecate.md 5). After the gate has spoken, more experts are materialised as long as
 * that pays for the gather, which is now on the critical path.
 *
 * The objective of a plan Q that adds guests to the plan P' made before the gate:
 *
 *     T(Q) = T_layer(Q) + T_spAG(P' -> Q) + [exposed(Q) - exposed(P')]        T_layer: layer_model.h
 *     exposed(Q) = max(0, T_spRS(Q -> homes) (+ T_spAG(homes -> Q) if copies are re-materialised) - 2 * window)
 *
 * exposed only when training: the gradients return under the attention's backward, twice as long as its forward. Sparse
 * collectives cost what spread_cost.h says, as one collective over everything added so far.
 *
 * A step adds one expert: a guest on every rank that does not hold it and has fewer than m guests of this layer. It
 * takes the expert with the largest (T - T_new) / (bytes added), ties to the lower id, and only if T_new < T; at most
 * n_experts steps. An expert is passed over without pricing when even a gather for free could not make it the best so
 * far.
 *
 * Where a copy everywhere is dear, this does nothing, though a few copies would pay. The gradients of n copies all end
 * at one owner. So with 63 copies of a large expert their return takes longer than the overload that it removes. With
 * `some`, which is not in the paper, a step also tries half as many guests, a quarter, ... one: on the nodes with
 * fewest holders of the expert, there on the ranks with fewest tokens. Of these it takes the number that ends the layer
 * soonest, not what gains most per byte. And it leaves the plan as it was unless the layer, its work by the whole law of
 * computing, ends sooner than that.
 *
 * With `some` a step takes the first expert that gains, by what the busiest link and rank would have left without it, and
 * the search ends where HEC_CALIBRATE_TRIES in a row do not gain. The best of all experts costs more to find and leads to
 * worse plans, since it sooner stands where none gains by itself. Over 270 settings of the joint grid's traces, models and
 * clusters iterations became 1.8 % shorter in the mean: 29 % at best, 8 % longer at worst, 12 longer by over 1 %. All
 * experts instead of 4: 2.4 % shorter, three times the planning. */
#pragma once
#include "models/load.h"
#include "runtime/plan/planners/layer_model.h"
#include "runtime/plan/planners/spread_cost.h"

enum { HEC_CALIBRATE_TRIES = 4 };

/* What a candidate's copies cost; < 0: not known yet. */
typedef struct {
  double gather_s, growth_s, return_s;
} hec_calibrate_price;

typedef struct {
  const hec_problem *problem;
  hec_layer_model model;
  hec_spread *gather, *scatter; /* parameters out, gradients back; scatter NULL: nothing returns */
  bool rematerialise;
  bool some;                        /* copies on some ranks, too; set after new */
  int32_t *rank_order, *node_count; /* [n_ranks], [n_nodes] scratch of `some` */
  int32_t *node;                    /* [n_ranks] */
  double window_s;                  /* of the layer */
  double own_s;                     /* hec_problem_own_gradients_s */
  int32_t *home;                    /* [n_experts] of the layer */
  int32_t *n_holders;               /* [n_experts] home included */
  int32_t n_words;                  /* of a set of ranks (rank_set.h) */
  uint64_t *holds;                  /* [n_experts * n_words] sets of ranks */
  uint64_t *room;                   /* [n_words] ranks that may get a guest more */
  int32_t *n_guests;                /* [n_ranks] of this layer */
  int32_t m;                        /* guests of a rank at most */
  bool all_have_room;
  uint64_t *receivers, *guests;     /* [n_words] of a candidate; scratch */
  int32_t *turn;                    /* [(n_ranks + 1) * n_ranks] who gets an expert, by its home while it
                                                  is alone; last row: an expert that others hold */
  bool *begun;                      /* [n_ranks] of this home, what is kept for the step has begun: */
  bool *turn_known;                 /* [n_ranks] its row of `turn` is made */
  double *out_s;                    /* [n_ranks] least price with a copy of an expert of it more; 0: any */
  int32_t turn_of;                  /* expert of the last row; -1: none */
  int32_t *open, *round, *round_at; /* [n_ranks], [n_ranks], [n_ranks + 1] scratch */
  int32_t *holders;                 /* [2 * n_ranks] scratch */
  double *part;                     /* [n_cells] of a candidate */
  double *bound;                    /* [n_experts] no score of this step is larger */
  int32_t *hopeful;                 /* scratch [n_experts] those that may still be the best of the step, ascending */
  int32_t n_halvings;               /* numbers of receivers that an expert is tried with, at most */
  hec_calibrate_price *alone;       /* [n_ranks * n_halvings] likewise, of experts that only this home holds */
  uint64_t units;                   /* inner steps in this layer */
  hec_spread_sum added;             /* gather of what this calibration added */
  hec_spread_sum gathered;          /* gather of all guests, for re-materialisation */
  hec_spread_sum returned;          /* scatter of all guests */
  hec_spread_sum gathered_rest, returned_rest; /* of all guests but those of one expert */
  int32_t rest_of;                             /* that expert; -1: not made */
  bool has_base;                /* gathered, returned and base_s are made (only when a candidate is priced) */
  double base_s, base_return_s; /* exposed(P'), T_spRS(P' -> homes) */
} hec_calibrate;

/* `gather` and `scatter` (NULL when not training) are the caller's and must outlive it. */
hec_calibrate hec_calibrate_new(hec_arena *arena, const hec_problem *problem, const hec_rank_links *links,
                                hec_spread *gather, hec_spread *scatter, bool rematerialise);

/* What ends a layer, for plans that are compared with none. With `some`; copies hidden in `exposed_s` as above:
 *
 *     forward  = 2 a2a + forward work + gather that is not hidden
 *     backward = 2 a2a + backward work + 2 window + exposed          lane = the layer's own gradients + those of guests
 *     end      = forward + max(backward, lane)
 *
 * The lane of gradients also has what any plan reduces (hec_problem_own_gradients_s). Where that takes longer than the
 * backward pass, as with several groups and large experts, a shorter backward gains nothing and every return is late. */
typedef struct {
  double a2a_s, forward_s, backward_s, gather_s, return_s, exposed_s;
} hec_layer_end;
double hec_calibrate_end_s(const hec_calibrate *calibrate, const hec_layer_end *of);

/* Adds guests to one layer of the plan. Returns the number of experts added; its inner steps are added to *units. */
int32_t hec_calibrate_layer(hec_calibrate *calibrate, hec_plan *plan, int32_t layer, const hec_load *load, int32_t m,
                            uint64_t *units);
