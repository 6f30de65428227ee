/* A policy decides placements: from a problem and past loads to a plan. It moves no byte and counts none. One file in
 * policies/ with everything static except one hec_policy, and one row in policy_list.h.
 *
 * A policy plans for one expert-parallel group and never sees another. Where a problem has several (problem.dp > 1),
 * each group has a run of its own, on a problem of its own ranks with dp 1. The plans are joined. Only a policy whose
 * paper places experts over all ranks says `all_ranks` and sees the whole problem. */
#pragma once
#include "runtime/base/option.h"
#include "runtime/base/table.h"
#include "runtime/plan/dispatch/dispatch.h"
#include "runtime/plan/hiding.h"
#include "runtime/plan/history.h"
#include "runtime/plan/plan.h"

typedef enum {
  HEC_KNOWN_STATIC,   /* uses no load, and its homes never move */
  HEC_KNOWN_PERIODIC, /* a window, every `period` iterations */
  HEC_KNOWN_LAST,     /* past records, every micro-batch, before the gate */
  HEC_KNOWN_EXACT,    /* this micro-batch, after the gate */
} hec_known;

typedef struct hec_policy hec_policy;
typedef struct hec_policy_groups hec_policy_groups;

enum { HEC_NOTE_BYTES = 400, HEC_POLICY_OWN_MAX = 5, HEC_POLICY_KEPT_MAX = 8 };

/* A policy at work on one problem, or what the runs of several groups give together. In the second case, state and
 * history of a policy are in the groups' runs. Here are the joined plan and the history of all sources. */
typedef struct {
  const hec_policy *policy;
  const hec_problem *problem;
  hec_arena *arena;          /* job lifetime; only init allocates */
  void *state;               /* the policy's own */
  hec_policy_groups *groups; /* the runs of expert-parallel groups; NULL: this is the only one */
  hec_history history;       /* pushed by hec_policy_observe */
  hec_plan plan;             /* in force; written by init, decide and refine */
  hec_link_cost link;        /* closed-form exchange cost, for pricing */
  hec_hiding hides;          /* of the schedule that the policy runs under */
  int64_t iter;              /* of the record about to run */
  int32_t micro_batch;       /* within the iteration */
  uint64_t units; /* work units of the last decide or refine (about one per inner step): planning costs a + b*units */
  uint64_t
      units_once; /* of them, those that the policy does once in a period: charged like what periodic policies plan */
  bool planned;   /* the last decide or refine really planned (a periodic policy between decisions did not) */
  uint64_t n_offered, n_dropped; /* assignments that a policy which drops has seen, and left out, since its start */
  int32_t *t, *m;                /* [n_layers] what FSSDP chose, for reports (the first group); -1: no meaning */
  /* What the policy carries from one step to the next beside plan and history (hec_policy_keep): what a checkpoint saves. */
  struct {
    void *data;
    size_t bytes;
  } kept[HEC_POLICY_KEPT_MAX];
  int32_t n_kept;
  /* What users of its numbers must know, a sentence or two: what it went without, how good it is; "": nothing. */
  char note[HEC_NOTE_BYTES];
} hec_policy_run;

struct hec_policy {
  const char *name, *summary, *source; /* source: paper */
  hec_known known;
  const char *schedule; /* the schedule it was published with */
  const hec_dispatch *dispatch;
  /* Slots per rank and layer that its homes and copies fill at most, unless options say otherwise: so many times the share
   * of experts that expert parallelism gives a rank, and so many more. `any`: as many as the load asks for. */
  struct {
    int32_t shares, more;
    bool any;
  } fills;
  int32_t window; /* records of history it reads, at least 1 */
  bool by_source; /* the history keeps what each source sent, too */
  int32_t period; /* iterations between decisions (0: none); problem.period overrides */
  /* Its paper places experts over all ranks: it sees the whole problem, and tokens may go to any rank. Else it works inside
   * each expert-parallel group. */
  bool all_ranks;
  bool sliced; /* homes in n_ranks slices instead of whole experts; then all_ranks */
  /* One rank (of each expert-parallel group) computes all tokens of an expert: no copies that share them, ever; for the
   * lower bounds of bound.h. When in doubt: false. */
  bool whole;
  bool relays; /* its copies may travel by collectives whose ranks pass on parts that they do not hold (collective.h) */
  bool shards; /* runs with experts cut over expert-sharding groups (problem.esp > 1): homes never move, no copies */
  bool by_transitions;  /* places by problem.transitions, where there are any */
  bool migrates_beside; /* migration overlaps the iteration until the layer computes, instead of preceding it */
  bool placed;    /* stands as problem.placement says, runs only where there is one: left out of "all" elsewhere */
  bool reference; /* no system but a reference row */
  bool drops;     /* computes less than the gate chose: no row to compare times with */
  bool baseline;  /* the row that others are compared to (ep) */
  /* Moves or copies experts by load or affinity; not: gathers from shards, fetches what is used. Of a run's rows the
   * fastest with it is the "best rearrangement" of verdict, JSON, CSV and sweeps. */
  bool rearranges;
  bool by_schedule; /* plans by what its schedule hides: never one plan for several schedules */
  /* Under its own schedule, pairs of other rows and schedules that are kept to be followed (program/portfolio.h); 0: none. */
  int32_t portfolio;
  bool varies; /* it tries the row with the switch own[0] the other way, 0 for 1, too */
  /* A portfolio tries this row: it was the fastest, or within 1 % of it, somewhere in tools/joint-grid.json. The others
   * would only take time: variants of these, and what these always beat. */
  bool tried;
  const char *only_schedule; /* not NULL: runs under no other schedule */
  /* Schedules that its paper excludes, names with blanks between them; a comment of the row has the reason. They are
   * no candidates where each policy has its best. NULL: none. */
  const char *excludes;
  /* What a user may set behind the name, "llep:cap=1.3": fields of this struct, whose values in the row are the defaults.
   * NULL: nothing. */
  const hec_option *options;
  double own[HEC_POLICY_OWN_MAX]; /* numbers that only this policy has, by an enum of its file */
  const void *form;               /* how the rows of one file differ; its own type */
  /* Set by hec_policy_read alone: which options were given, and of these names what stands for the problem's. */
  uint32_t given;
  int32_t t, m, slots;
  /* Allocates state, names what of it must be kept (hec_policy_keep), and writes the first plan (costs nothing). */
  void (*init)(hec_policy_run *run);
  /* Before the gates of a micro-batch: writes all layers of run->plan from run->history. Allocates nothing. NULL: keep.
   */
  void (*decide)(hec_policy_run *run);
  /* The next decide chooses homes afresh from the history as it then is, due or not (`hecate-sim plan --reshard`).
   * NULL: the policy's decide always does, or its homes never move. */
  void (*reshard)(hec_policy_run *run);
  /* After the gate of one layer: may change that layer of run->plan. `load` holds this micro-batch, its row `layer` is
   * valid. NULL: the policy does not look. */
  void (*refine)(hec_policy_run *run, int32_t layer, const hec_load *load);
  /* What is computed instead of the gate's choice (ep-balanced; capacity dropping). In place. NULL: the gate's choice.
   */
  void (*rewrite)(hec_policy_run *run, hec_load *load);
};

#include "runtime/plan/policy_list.h"
#define HEC_POLICY_DECLARE(name) extern const hec_policy hec_policy_##name;
HEC_POLICY_LIST(HEC_POLICY_DECLARE)
extern const hec_policy *const hec_policies[]; /* NULL-terminated, in the order of the list */

const hec_policy *hec_policy_find(const char *name); /* by its row's name ("hecate-rm"); NULL when unknown */

/* From "NAME" or "NAME:option=value,..." to a policy: the row, or a copy of it on the arena with these values and a name that
 * says them. HEC_BAD_INPUT begins with `where`; `table`: how messages speak of the rows, NULL: simply. */
hec_status hec_policy_read(const char *text, const hec_table *table, const char *where, hec_arena *arena,
                           const hec_policy **policy) HEC_MUST_USE;

/* Whether the field at this offset was given as an option. */
bool hec_policy_says(const hec_policy *policy, size_t at);
#define HEC_POLICY_SAYS(policy, field) hec_policy_says(policy, offsetof(hec_policy, field))
/* Slots per rank and layer that were asked for, by the option or by the problem. HEC_AUTO: not asked for, or option
 * own[i] says in another way how many. */
int32_t hec_policy_slots(const hec_policy_run *run, int32_t i);

/* Options that several rows have. The default of period, slots, t and m is what the problem says, else the policy's. */
#define HEC_POLICY_INT(text, field, from, to, ...)                                                                     \
  { .name = text, .at = offsetof(hec_policy, field), .min = from, .max = to, __VA_ARGS__ }
#define HEC_POLICY_WHOLE(text, i, from, to, ...)                                                                       \
  { .name = text, .type = HEC_OPTION_WHOLE, .at = offsetof(hec_policy, own[i]), .min = from, .max = to, __VA_ARGS__ }
#define HEC_POLICY_REAL(text, i, from, to, ...)                                                                        \
  { .name = text, .type = HEC_OPTION_REAL, .at = offsetof(hec_policy, own[i]), .min = from, .max = to, __VA_ARGS__ }
#define HEC_POLICY_WINDOW(...)                                                                                         \
  HEC_POLICY_INT("window", window, 1, 1000, .help = "past records whose load it places by", __VA_ARGS__)
#define HEC_POLICY_PERIOD(...)                                                                                         \
  HEC_POLICY_INT("period", period, 1, 1000000000, .help = "iterations between decisions", __VA_ARGS__)
#define HEC_POLICY_SLOTS(...)                                                                                          \
  HEC_POLICY_INT("slots", slots, 1, 1000000, .help = "experts that a rank holds per layer", __VA_ARGS__)
#define HEC_POLICY_M(...)                                                                                              \
  HEC_POLICY_INT("m", m, 0, 1000000, .help = "max copies per rank and layer", .initial = "what memory allows",         \
                 __VA_ARGS__)

/* Whether the policy can run on the problem; HEC_BAD_INPUT with the reason where not. */
hec_status hec_policy_suits(const hec_policy *policy, const hec_problem *problem) HEC_MUST_USE;

/* Whether it places by loads of iterations before: without any it stands as it began. */
bool hec_policy_looks_back(const hec_policy *policy);

/* A policy with its first plan; everything on `arena`. */
hec_policy_run hec_policy_start(const hec_policy *policy, const hec_problem *problem, hec_arena *arena);
/* The same under a schedule that hides something. */
hec_policy_run hec_policy_start_under(const hec_policy *policy, const hec_problem *problem, hec_hiding hides,
                                      hec_arena *arena);
void hec_policy_stop(hec_policy_run *run); /* what is not on the arena */
HEC_SCOPED_BY(hec_policy_run, hec_policy_stop)
/* The decision before the gates: resets units and planned, calls decide. */
void hec_policy_decide(hec_policy_run *run, int64_t iter, int32_t micro_batch);
void hec_policy_refine(hec_policy_run *run, int32_t layer, const hec_load *load);
/* After a micro-batch: its load, as computed, becomes history. */
void hec_policy_observe(hec_policy_run *run, const hec_load *load);
void hec_policy_rewrite(hec_policy_run *run, hec_load *load); /* in place; nothing where the row rewrites none */
void hec_policy_reshard(hec_policy_run *run);                 /* nothing where the row has none */
/* Appends to the note; what does not fit is a mistake of the policy's. */
void hec_policy_note(hec_policy_run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* In init: these bytes are state that a later decision reads. Scratch, and what init alone writes, are not. */
void hec_policy_keep(hec_policy_run *run, void *data, size_t bytes);

/* A run between two steps as bytes: `out` has room for what hec_policy_save returns; NULL: only that. */
size_t hec_policy_save(const hec_policy_run *run, uint8_t *out);
/* Takes up what was saved, in a run that just started. The same policy on the same ranks decides from then on what the
 * saved run would have decided. Another policy, or other ranks (*same false), has the loads of the past as its
 * history. Each record is spread evenly over the sources, and homes are chosen afresh. HEC_BAD_INPUT: no such bytes,
 * or other layers or experts. */
hec_status hec_policy_restore(hec_policy_run *run, const uint8_t *data, size_t bytes, bool *same) HEC_MUST_USE;

/* The plans of a run, its groups' too, out of the run: so that several micro-batches are in flight. */
typedef struct {
  int32_t n;
  hec_plan *plan; /* [n] of all ranks, then of each group */
} hec_policy_plans;
hec_policy_plans hec_policy_plans_new(const hec_policy_run *run, hec_arena *arena);
void hec_policy_plans_read(hec_policy_plans *plans, const hec_policy_run *run); /* what is in force in the run */
/* hec_policy_refine on these plans; the run's stay as they are. */
void hec_policy_plans_refine(hec_policy_plans *plans, hec_policy_run *run, int32_t layer, const hec_load *load);

/* Iterations between decisions, the one place that knows: the row's option, else the problem's, else the row's default.
 * A row with a clock of its own begins with it, and one that weighs what a decision saves counts it for so long. */
int32_t hec_policy_period(const hec_policy_run *run);
/* True when a periodic policy decides now; then sets *last. That is in the first micro-batch of an iteration, with a
 * history, and at least hec_policy_period iterations since *last (-1: never). */
bool hec_policy_due(const hec_policy_run *run, int64_t *last);
