/* What a run says about each policy, as numbers; tools/front/summary/ writes them. Simulator and runtime use the same. */
#pragma once
#include "runtime/program/lower.h"
#include "runtime/program/timeline.h"
#include "traces/trace.h"

typedef struct hec_job hec_job; /* job.h */

/* Growing list of numbers, one per iteration (or per iteration and layer). */
typedef struct {
  double *value; /* [n] in the order they were added */
  size_t n, capacity;
  double *sorted; /* [n_sorted] made when a quantile is asked for */
  size_t n_sorted, sorted_capacity;
} hec_series;
void hec_series_add(hec_series *series, double value);
void hec_series_free(hec_series *series);
/* Quantile q in 0..1 by linear interpolation between order statistics (rank q*(n-1)). 0 when empty. */
double hec_series_quantile(hec_series *series, double q);

enum { HEC_FLOAT_BITS = 24 };   /* of a float32's significand */
#define HEC_SUMMARY_NEAR 0.1    /* of the fastest median: near enough that another network law may turn the order */
#define HEC_SUMMARY_CLOSE 0.005 /* of the fastest median: less apart is nothing to choose by */

/* What a run's comparison with the dense reference found. */
typedef struct {
  bool passed;
  double worst, tolerance; /* relative errors of the run's own iterations */
  int64_t compared;        /* numbers */
  char worst_at[96];
  bool exact_equal;   /* one layer, one step, bit for bit */
  int32_t exact_bits; /* that its sums needed; above 24 rounding decides, so it proves nothing */
  int64_t exact_compared;
  char exact_worst_at[96];
} hec_summary_check;

/* One policy over the reported iterations. */
typedef struct {
  const char *name, *schedule;
  const char *label;          /* where the schedule does not stand beside it: the name, or "NAME/SCHEDULE" */
  const char *about, *source; /* what its policy does, and its paper; NULL: not known */
  bool executed;              /* not simulated */
  bool reference;             /* no system but a reference row (ideal, ep-balanced) */
  bool baseline;              /* the row others are compared to */
  bool rearranges;            /* its policy's flag: the fastest of these is what others are compared to as well */
  bool placed;                /* likewise: what the user has today, which the verdict compares with */
  const char *published;      /* the schedule that its policy was published with */
  double published_s;         /* of rows that people run today: median under that schedule; 0: not known */
  hec_series iteration_s;     /* per iteration, one-off costs included */
  hec_series overload;        /* per (iteration, micro-batch, layer) */
  const char *bound_class;    /* what its policy may do (runtime/plan/bound/bound.h); NULL: no bound */
  hec_series bound_s;         /* per iteration: no policy of the class under the schedule is faster; empty: none */
  hec_series late; /* executed on devices: share of the iteration that the worst rank's stood idle for a late host */
  double weighted_s, stride;                  /* sums for the mean: stride * ordinary + one-off; stride */
  double book_s[HEC_N_BOOKS], wait_s, skew_s; /* sums over iterations */
  double sparse_s, exposed_sparse_s;          /* likewise: gathers and scatters on their way; of it exposed */
  double traffic[HEC_N_TRAFFIC];
  double peak_bytes; /* fullest rank, worst iteration */
  double peak_class[HEC_N_MEMORY];
  int32_t t_min, t_max, m_min, m_max; /* FSSDP; -1: none */
  double dropped_share;               /* of the assignments since the start, warm-up included; -1: it drops none */
  int64_t n;                          /* iterations reported */
  double before_s;  /* executed: sum over iterations, ranks and layers of the forward time before an MoE layer */
  int64_t n_before; /* terms of it */
  int64_t n_migrations;
  double *rank_peak;         /* [n_ranks] scratch */
  hec_summary_check *check;  /* NULL: none */
  char note[HEC_NOTE_BYTES]; /* of its policy; "": none */
  bool cuts, routes,
      by_node;             /* its schedule chooses degrees, routes of token rows, or layers whose rows travel once per
                                node: */
  hec_token_choice choice; /* in all iterations */
} hec_summary_row;

/* How and where it was executed. */
typedef struct {
  const char *backend, *transport, *transport_summary;
  const char *cpu, *blas;      /* the machine's processor, the library of its arithmetic; of devices: theirs */
  const char *unit;            /* "core" (NULL too), "device": what ranks share where there are fewer of them */
  const char *ranks_are;       /* "processes", "threads" */
  int32_t n_ranks_here;        /* on this machine */
  int32_t n_cores;             /* units of this machine that its ranks may use */
  int32_t n_warmup;            /* iterations before those reported */
  bool virtual_time, imitates; /* imitates: transfers are held to the links of the cluster */
  uint64_t seed;
  const char *const *limits; /* [n_limits] what the numbers do not say */
  int32_t n_limits;
} hec_summary_execution;

static inline bool hec_summary_on_devices(const hec_summary_execution *execution) {
  return execution && execution->unit && execution->unit[0] == 'd';
}
/* Whether ranks took turns on cores, or shared devices, while real time was measured: such times predict nothing. */
static inline bool hec_summary_execution_crowded(const hec_summary_execution *execution) {
  return !execution->virtual_time && execution->n_cores < execution->n_ranks_here;
}

/* The same comparison under one kind of attention, beside others: what stays of the window that hides parameter traffic. */
enum { HEC_ATTENTIONS_MAX = 4 };
typedef struct {
  const char *name;
  double iteration_s;                /* median */
  double sparse_s, exposed_sparse_s; /* means per iteration */
  int32_t t_min, t_max;              /* -1: none */
} hec_summary_attention_row;
typedef struct {
  char kind[96];
  double context;                  /* keys per query */
  double window_s, dense_window_s; /* dense: of layers beside s2 that stay dense; 0: there are none */
  double reach_bytes;              /* into a node while the window lasts */
  hec_summary_attention_row *rows; /* [n_rows] */
} hec_summary_attention;

/* The fastest rows once more under another network law (tools/front/cross_check.h). */
enum { HEC_CROSSED_MAX = 6 };
typedef struct {
  int32_t row;
  double own_s, other_s; /* medians over the same iterations, under the summary's law and the other */
} hec_summary_crossed;
typedef struct {
  const char *law;
  int64_t n_iterations;
  hec_summary_crossed rows[HEC_CROSSED_MAX]; /* [n] the fastest under `law` first */
  int32_t n;
} hec_summary_cross;

typedef struct {
  const hec_job *job;
  const char *tool, *trace, *law;         /* trace: its path as given */
  const char *not_modelled;               /* of a simulation: by anything, then by the network law */
  const hec_summary_execution *execution; /* NULL: simulated; else law is the one that predicts it, NULL: none does */
  hec_summary_row *rows;                  /* [n_rows] */
  int32_t n_rows;
  bool best;                               /* each row runs under the best schedule that its policy allows */
  int64_t n_iterations;                    /* reported */
  hec_token_range tokens;                  /* of the trace's records */
  hec_series iters;                        /* what the trace calls them, in their order; may be empty */
  const hec_summary_cross *cross;          /* NULL: none was made */
  const hec_summary_attention *attentions; /* [n_attentions] kinds to be compared; the summary's own is the first */
  int32_t n_attentions;                    /* 0: none */
} hec_summary;

hec_summary_row hec_summary_row_of(const hec_policy *policy, const hec_schedule *schedule, int32_t n_ranks,
                                   hec_arena *arena);
/* Labels of rows of the same policy under several schedules. */
void hec_summary_tell_apart(hec_summary *summary, hec_arena *arena);
void hec_summary_row_free(hec_summary_row *row);
void hec_summary_free(hec_summary *summary); /* the series of its rows */

/* Adds the iteration that was just lowered and how long its parts took: times, traffic, overload, memory, degrees.
 * all, ordinary, stride: as hec_summary_add. */
void hec_summary_add_iteration(hec_summary_row *row, const hec_lowering *low, const hec_breakdown *all,
                               const hec_breakdown *ordinary, int64_t stride);
/* From -1: the range of those values that are not negative. values NULL: none. */
void hec_summary_widen(int32_t *min, int32_t *max, const int32_t *values, int32_t n);
/* Which reported iteration of the row is nearest its median; the earlier wins ties. */
int64_t hec_summary_nearest_median(hec_summary_row *row);

/* Adds one iteration: all of it, and what it would have been without its one-off operations (the same when there are
 * none). Everything but the series counts stride * ordinary + one-off, so that the parts of a row add up to its mean.
 */
void hec_summary_add(hec_summary_row *row, const hec_breakdown *all, const hec_breakdown *ordinary, int64_t stride);
void hec_summary_add_traffic(hec_summary_row *row, const double ordinary[HEC_N_TRAFFIC],
                             const double one_off[HEC_N_TRAFFIC], int64_t stride);

double hec_summary_reach_bytes(const hec_problem *problem);
/* What the summary says of its job's kind of attention. */
hec_summary_attention hec_summary_attention_of(hec_summary *summary, hec_arena *arena);

double hec_summary_median(hec_summary_row *row);
double hec_summary_vs_bound(hec_summary_row *row); /* median over the median of the bounds; NAN without one */
double hec_summary_spread(hec_summary_row *row);   /* interquartile range over median; NAN of one iteration */
double hec_summary_mean(const hec_summary_row *row);
double hec_summary_per_iteration(const hec_summary_row *row, double sum); /* of a sum that the row keeps */
/* Share of the time of gathers and scatters in which something else was computed or sent; NAN of a row without. */
double hec_summary_hidden(double sparse_s, double exposed_sparse_s);
int32_t hec_summary_baseline(const hec_summary *summary);          /* the first such row; -1: none ran */
double hec_summary_vs_baseline(hec_summary *summary, int32_t row); /* ratio of medians; NAN without a baseline */
int32_t hec_summary_placed(const hec_summary *summary);            /* the row of the user's placement; -1: none ran */
double hec_summary_vs_placed(hec_summary *summary, int32_t row);   /* ratio of medians; NAN without one */
double hec_summary_vs_rearrangement(hec_summary *summary, int32_t row); /* NAN when none of these ran */
double hec_summary_memory(const hec_summary *summary);                  /* bytes of the smallest device in use */
bool hec_summary_fits(const hec_summary *summary, const hec_summary_row *row);

/* What a row says in numbers, NAN: nothing. X(id, column, group, key, value): its column in CSV. In JSON the key, of the
 * object `group` where there is one; the value of row `i`, which is `row`. */
/* clang-format off */
#define HEC_SUMMARY_VALUE_LIST(X) \
  X(MEDIAN, "iteration_median_s", "iteration_s", "median", hec_summary_median(row)) \
  X(P95, "iteration_p95_s", "iteration_s", "p95", hec_series_quantile(&row->iteration_s, 0.95)) \
  X(MEAN, "iteration_mean_s", "iteration_s", "mean", hec_summary_mean(row)) \
  X(VS_EP, "speedup_vs_ep", NULL, "speedup_vs_ep", hec_summary_vs_baseline(summary, i)) \
  X(VS_REARRANGEMENT, "speedup_vs_best_rearrangement", NULL, "speedup_vs_best_rearrangement", hec_summary_vs_rearrangement(summary, i)) \
  X(BOUND, "bound_s", NULL, "bound_s", row->bound_s.n > 0 ? hec_series_quantile(&row->bound_s, 0.5) : NAN) \
  X(VS_BOUND, "vs_bound", NULL, "vs_bound", hec_summary_vs_bound(row)) \
  X(OVERLOAD_MEDIAN, "overload_median", "overload_factor", "median", hec_series_quantile(&row->overload, 0.5)) \
  X(OVERLOAD_P95, "overload_p95", "overload_factor", "p95", hec_series_quantile(&row->overload, 0.95)) \
  X(EXPOSED_TOKEN, "exposed_token_s", "exposed_s", "token", hec_summary_per_iteration(row, row->book_s[HEC_BOOK_TOKEN])) \
  X(EXPOSED_PARAM, "exposed_param_s", "exposed_s", "param", hec_summary_per_iteration(row, row->book_s[HEC_BOOK_PARAM])) \
  X(EXPOSED_GRAD, "exposed_grad_s", "exposed_s", "grad", hec_summary_per_iteration(row, row->book_s[HEC_BOOK_GRAD])) \
  X(EXPOSED_MIGRATION, "exposed_migration_s", "exposed_s", "migration", hec_summary_per_iteration(row, row->book_s[HEC_BOOK_MIGRATION])) \
  X(HIDDEN, "hidden_share", NULL, "hidden_share", hec_summary_hidden(row->sparse_s, row->exposed_sparse_s)) \
  X(COMPUTE, "compute_s", NULL, "compute_s", hec_summary_per_iteration(row, row->book_s[HEC_BOOK_COMPUTE])) \
  X(PLANNING, "planning_s", NULL, "planning_s", hec_summary_per_iteration(row, row->book_s[HEC_BOOK_PLAN])) \
  X(WAIT, "wait_s", NULL, "wait_s", hec_summary_per_iteration(row, row->wait_s)) \
  X(PEAK, "peak_memory_bytes", NULL, "peak_memory_bytes", row->peak_bytes) \
  X(FITS, "fits", NULL, "fits", hec_summary_fits(summary, row)) \
  X(DROPPED, "dropped_share", NULL, "dropped_share", row->dropped_share >= 0 ? row->dropped_share : NAN)
/* clang-format on */
#define HEC_SUMMARY_VALUE_ID(id, ...) HEC_VALUE_##id,
typedef enum { HEC_SUMMARY_VALUE_LIST(HEC_SUMMARY_VALUE_ID) HEC_N_SUMMARY_VALUES } hec_summary_value;
typedef struct {
  const char *column, *group, *key;
} hec_summary_value_name;
extern const hec_summary_value_name hec_summary_value_names[HEC_N_SUMMARY_VALUES];
double hec_summary_value_of(hec_summary *summary, int32_t i, hec_summary_value value);

/* Whether the rows have one order under both laws. */
bool hec_summary_cross_agrees(const hec_summary_cross *cross);
int32_t hec_summary_winner(hec_summary *summary); /* of a simulation: the fastest system that fits; -1: none does */
/* The fastest row that rearranges experts, whether it fits or not; -1: none ran. What the verdict names and what
 * speedup_vs_best_rearrangement is over. */
int32_t hec_summary_fastest_rearranging(hec_summary *summary);
