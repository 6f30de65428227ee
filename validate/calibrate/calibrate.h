/* Calibration: what this machine takes for the operations of a model shape, as a cluster that predicts it.
 *
 * Everything is measured where it will be used: in whole iterations of the executor with synthetic loads, all ranks at
 * work, cases in random order. The laws are fitted to the operations in them (samples.h, fit.h):
 *     GEMMs of attention, gate, experts; permute, reduce, optimizer; all-reduce, counts      curves over rows or bytes
 *     exchanges       latency + scale * what the law of the links says (links that are imitated, or a stand-in);
 *                     between hosts links are measured by themselves (links.h)
 *     planning        a + b * work units
 *     other shapes    peak rate and fixed cost from the experts' curve, bytes/s from the optimizer's
 *
 * An expert operation is the sum of its experts, so the curve of one expert comes out of many sums.
 *
 * The loads are drawn from a seed of calibration's own: nothing that is predicted later was seen here. */
#pragma once
#include "validate/calibrate/fit.h"
#include "validate/calibrate/links.h"
#include "validate/calibrate/samples.h"
#include "validate/experiment.h"

typedef struct {
  const hec_model *model;   /* shape, experts, top-k, layers */
  const hec_cluster *base;  /* links that ranks run on: imitated ones, or a stand-in whose rates are scaled */
  int32_t n_ranks, tokens;  /* tokens: max per rank; halves and quarters are measured too */
  int32_t esp;              /* ranks of an expert-sharding group; 0: 1 */
  bool train, virtual_time; /* virtual time: links are kept as they are, nothing is there to measure */
  uint64_t seed;
} hec_calibrate_options;

/* An iteration that was read. */
typedef struct {
  int32_t a_case, step; /* past the warm-up */
  double disturbance;   /* experiment.h */
} hec_calibration_reading;

typedef struct {
  hec_curve_kind kind;
  bool backward;
  double flops_per_row;
  hec_fit fit;
} hec_calibrated_curve;

typedef struct {
  hec_calibrate_options options;
  hec_experiment_case *cases; /* [n_cases] for an experiment */
  int32_t n_cases;
  hec_samples samples;
  hec_link_cost links;
  hec_links_found known;             /* links that were measured by themselves; n 0: they were not */
  hec_calibration_reading *readings; /* [n_read] */
  int32_t n_read;
  size_t readings_capacity;
  int32_t n_undisturbed;
  /* After hec_calibration_fit: */
  hec_calibrated_curve curves[HEC_SAMPLE_SETS_MAX];
  int32_t n_curves;
  hec_line exchange, plan;
  double flops, gemm_a_s, hbm_bandwidth, launch_s;
  double comm_share;    /* of a processor, that moving bytes takes while an exchange lasts */
  double speed;         /* 1, or less: see hec_calibration_pace */
  double disturbed;     /* share of the iterations that were disturbed */
  bool contaminated;    /* more than HEC_CONTAMINATED_MAX of them */
  double probe_s;       /* of the pace that its times are at; 0: not known */
  double level, own[3]; /* how far times may be off altogether, of 1: half an interval (resample.h); NAN: not known.
                         * Median error on its own cases, and its interval. Set by the session that ran it. */
} hec_calibration;

/* Above this share of disturbed iterations results are marked. They are results all the same: their intervals say how far
 * they can be trusted. */
#define HEC_CONTAMINATED_MAX 0.5

/* Draws the cases. HEC_BAD_INPUT for clusters that a calibration cannot describe. */
hec_status hec_calibration_open(hec_calibration *calibration, const hec_calibrate_options *options,
                                hec_arena *arena) HEC_MUST_USE;
/* On rank 0, before any iteration: links that were measured by themselves take the place of the base's. */
void hec_calibration_set_links(hec_calibration *calibration, const hec_links_found *found, hec_arena *arena);
/* On rank 0: one iteration of one of its cases, of which reading->a_case is the index. */
void hec_calibration_add(hec_calibration *calibration, const hec_problem *problem,
                         const hec_experiment_reading *reading, const hec_replayed *iteration);
/* On rank 0, after all: fits to the readings that count (resample.h, hec_choose_readings), of each iteration of a case by
 * itself. The others are forgotten. HEC_FAILED when nothing can be fitted. */
hec_status hec_calibration_fit(hec_calibration *calibration, hec_arena *arena) HEC_MUST_USE;
/* Ranks that wait for each other go at the pace of whoever is late at that moment. So with durations that scatter, an
 * iteration takes longer than its operations' typical durations add up to. Sets `speed`, which slows all computing
 * down, such that the iterations of the calibration's own cases come out right in the median. predicted[0] and
 * predicted[1] are their times with speed 1 and HEC_PACE_TRIED. Computing alone scales, so times are linear in
 * 1 / speed. Never above 1. */
void hec_calibration_pace(hec_calibration *calibration, const double *const predicted[2], const double *measured,
                          int32_t n, hec_arena *arena);
void hec_calibration_close(hec_calibration *calibration);

/* The cluster file (cluster.h, JSON form), with residuals and cases. */
typedef struct {
  const char *name, *cpu, *blas, *unit, *backend, *transport, *date; /* unit: "core", "device"; date NULL: none */
  int32_t n_cores;
} hec_calibration_machine;
void hec_calibration_json(const hec_calibration *calibration, const hec_calibration_machine *machine, hec_text *out);
