/* Lowering: an iteration of (problem, policy, loads) becomes a program, segment by segment (a segment ends at a gate).
 *
 *   hec_lower_begin
 *     per micro-batch:  hec_lower_micro_batch        the policy decides; migration when homes or replicas changed
 *       per MoE layer:  hec_lower_to_gate            ... attention, gate, counts          -- segment ends
 *                       hec_lower_from_gate(load)    the policy refines; dispatch, experts, combine
 *     hec_lower_micro_batch_end                      head; backward (training)
 *   hec_lower_end                                    the rest of the dense gradients, optimizer
 *
 * hec_lower_iteration does all of it for recorded loads. What order and which lanes: the schedule's row.
 *
 * A pipeline stage has several micro-batches under way. After hec_lowering_interleave their layers come in any order,
 * each forward before its backward. hec_lower_micro_batch begins a micro-batch, and hec_lower_resume goes on with one
 * that has begun. hec_lower_backward is the backward of one layer, and hec_lower_micro_batch_done ends it. Gradients
 * are reduced with the backward of micro-batch `last`, so every layer's backward of that one comes last. */
#pragma once
#include "runtime/base/table.h"
#include "runtime/plan/collective.h"
#include "runtime/plan/hiding.h"
#include "runtime/plan/policy.h"
#include "runtime/program/program.h"
#include "runtime/program/token_route.h"

typedef struct hec_lowering hec_lowering;

enum { HEC_DEGREE_MAX = 16 };
/* How layers had their token work cut and sent, counted once for each micro-batch. [r] counts those of degree r, [k]
 * those on route k of hec_token_routes. Then those whose rows travel once per node. */
typedef struct {
  int64_t n_layers, degree[HEC_DEGREE_MAX + 1], route[HEC_N_TOKEN_ROUTES], by_node;
} hec_token_choice;

typedef struct {
  const char *name, *summary, *source;
  bool plans_beside; /* planning before the gate runs beside the device instead of before it */
  bool
      tokens_wait; /* experts of a layer are computed after all of its dispatch and before its combine, layer after layer;
                        false: tokens may travel beside experts (bound.h then assumes less) */
  bool alone;      /* nothing runs beside anything: migration too precedes all else, whatever the policy's row says */
  bool chunked;    /* cuts the token work of a layer into chunks, and chooses into how many */
  bool routes;     /* chooses the route of token rows, too */
  /* AllGather and ReduceScatter of expert-sharding groups (problem.esp) have the intra-node lane, beside the tokens
   * between nodes. False: they stand in line with them on the token lane. */
  bool inside;
  bool cuts;    /* reduces dense gradients in pieces on the token lane, too: none may run on another lane meanwhile */
  bool by_node; /* token rows may travel once per node, for several of the token's experts (nodes.h) */
  const char
      *unsharded; /* without expert-sharding groups (problem.esp 1) it makes the programs of that one; NULL: of none */
  hec_hiding hides; /* what policies that plan with it are told */
  bool own;         /* of no paper: among the best only of policies that name it */
  bool tried;       /* by portfolios, as policy.h has it */
  bool bound;       /* a lower bound, no system: the optimizer runs over an even share of the experts */
  void (*to_gate)(hec_lowering *low, int32_t layer);   /* forward up to and with the counts of the gate */
  void (*from_gate)(hec_lowering *low, int32_t layer); /* the rest of the layer's forward */
  void (*backward)(hec_lowering *low, int32_t layer);
  void (*end)(hec_lowering *low); /* after the backward of a micro-batch: what was put off; NULL: nothing was */
  /* What the schedule itself remembers from layer to layer and iteration to iteration (hec_lowering.own), at its start.
   * It is the same on every rank, so it follows from nothing but the problem and the loads. NULL: nothing. */
  void *(*start)(const hec_problem *problem, hec_arena *arena);
} hec_schedule;

#define HEC_SCHEDULE_LIST(X)                                                                                           \
  X(serial)                                                                                                            \
  X(deepspeed)                                                                                                         \
  X(hecate) X(laer) X(joint) X(pipemoe) X(tutel) X(tutel_improved) X(lina) X(fsmoe) X(fsmoe_no_iio) X(hiermoe) X(ideal)
#define HEC_SCHEDULE_DECLARE(name) extern const hec_schedule hec_schedule_##name;
HEC_SCHEDULE_LIST(HEC_SCHEDULE_DECLARE)
extern const hec_schedule *const hec_schedules[]; /* NULL-terminated */
const hec_schedule *hec_schedule_find(const char *name);
extern const hec_table hec_schedule_table;      /* those that can be asked for, and "published" */
extern const hec_table hec_schedule_best_table; /* likewise of a comparison: "best" too */

/* The schedule that `policy` runs under when `name` is asked for ("published": the one it was published with). Unknown
 * name, or `ideal` for any policy but its own: HEC_BAD_INPUT. A policy with only_schedule runs under that one whatever
 * known name is asked for, so that reference rows stand in every comparison. */
hec_status hec_schedule_of(const hec_policy *policy, const char *name, const hec_schedule **schedule) HEC_MUST_USE;
/* Those that "best" chooses from: all that may be asked for but those that the policy excludes and twins of others,
 * the published one first. Of a policy that plans by its schedule only that one. How many. */
#define HEC_SCHEDULE_COUNT(name) +1
enum { HEC_SCHEDULES_MAX = 0 HEC_SCHEDULE_LIST(HEC_SCHEDULE_COUNT) };
int32_t hec_schedules_of(const hec_policy *policy, const hec_problem *problem,
                         const hec_schedule *schedules[HEC_SCHEDULES_MAX]);

/* What an iteration takes by the laws of whoever interprets programs. A policy that compares whole iterations asks it
 * (portfolio.h); the problem names it, so that all who plan for one job ask the same one. */
typedef struct hec_pricer hec_pricer;
struct hec_pricer {
  void *(*start)(const hec_pricer *pricer, const hec_problem *problem, hec_arena *arena); /* the state */
  /* Seconds, without what moves once. goes_on: as in walk.h, the programs priced before are still there. */
  double (*iteration_s)(void *state, const hec_program *program, bool goes_on);
  void (*stop)(void *state);
  const void *law; /* of the interpreter */
};

/* One policy at work: its run, its lowering, its program. Memory: arena for what is sized by the problem, growing
 * arrays for the program; nothing is allocated once they stopped growing. */
hec_lowering *hec_lowering_new(const hec_problem *problem, const hec_policy *policy, const hec_schedule *schedule,
                               const hec_collective *collective /* NULL: choose by cost */, hec_arena *arena);
void hec_lowering_free(hec_lowering *low);
HEC_OPENED_BY(hec_lowering, hec_lowering_free)
/* The same policy, at work in `first`, under a schedule more: it plans once for all of them. They are lowered together
 * (hec_lower_iterations), in one thread, and freed before `first`, whose arena they are on. */
hec_lowering *hec_lowering_beside(const hec_lowering *first, const hec_schedule *schedule);

/* Swaps the memory of the program with `program`, which may be empty. Between iterations. What was lowered is then in
 * `program`, and the next iteration goes into what that had. So many lowerings can work in the memory of one program.
 */
void hec_lowering_swap_program(hec_lowering *low, hec_program *program);

void hec_lower_begin(hec_lowering *low, int64_t iter, int32_t n_micro_batches);
void hec_lower_micro_batch(hec_lowering *low, int32_t micro_batch);
void hec_lower_to_gate(hec_lowering *low, int32_t layer);
void hec_lower_from_gate(hec_lowering *low, int32_t layer, const hec_load *load);
void hec_lower_micro_batch_end(hec_lowering *low, const hec_load *load); /* also pushes the load to the history */
void hec_lower_end(hec_lowering *low);

/* Up to so many micro-batches are under way at once; before the first iteration. For policies that keep their plan through
 * an iteration and gather no experts for a layer. */
void hec_lowering_interleave(hec_lowering *low, int32_t n_micro_batches, int32_t last);
void hec_lower_resume(hec_lowering *low, int32_t micro_batch);
void hec_lower_backward(hec_lowering *low, int32_t layer);
void hec_lower_micro_batch_done(hec_lowering *low, const hec_load *load);

/* `loads` [n]: one per micro-batch; with n == 1 the same load is used n_micro_batches times. A policy that rewrites
 * loads gets a copy. */
void hec_lower_iteration(hec_lowering *low, int64_t iter, const hec_load *loads, int32_t n, int32_t n_micro_batches);
/* The first and those beside it: each has the program that it would have alone. */
void hec_lower_iterations(hec_lowering *const *lows, int32_t n_lows, int64_t iter, const hec_load *loads, int32_t n,
                          int32_t n_micro_batches);

/* Who executes programs may do work of the host beside them, for policies that compare whole iterations. Without one, or where
 * `begin` returns NULL, the work is done when its result is wanted. */
typedef struct {
  void *(*begin)(void (*work)(void *), void *context);
  void (*end)(void *begun); /* waits for it */
} hec_helper;
void hec_lowering_help(hec_lowering *low, const hec_helper *helper);

/* From now on programs say what travels, not only how much: parcels, cells, items (program.h). For executors. */
void hec_lowering_detail(hec_lowering *low);

/* Gates choose, so which tokens have which experts is not to be inferred from counts: rows travel by assignment. */
void hec_lowering_gated(hec_lowering *low);

/* Applies the policy's rewriting of loads, if it has one, in place (hec_lower_iteration does it itself). */
void hec_lowering_rewrite(hec_lowering *low, hec_load *load);

const hec_program *hec_lowering_program(const hec_lowering *low);
const hec_policy_run *hec_lowering_run(const hec_lowering *low);
const char *
hec_lowering_note(const hec_lowering *low); /* the policy's and the schedule's; "": none. Valid until the next call */
/* Id of the newest counts operation of the layer. */
int32_t hec_lowering_counts(const hec_lowering *low, int32_t layer);
/* Overload factors (busiest rank over mean) of the iteration just lowered: [n_micro_batches * n_layers]. */
const double *hec_lowering_overload(const hec_lowering *low, int32_t *n);
const hec_token_choice *hec_lowering_choice(const hec_lowering *low); /* of the iteration just lowered */
bool hec_lowering_migrated(const hec_lowering *low); /* in the iteration just lowered something moved */
bool hec_lowering_one_off(const hec_lowering *low);  /* it has one-off operations: migration or periodic planning */
