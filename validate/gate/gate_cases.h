/* What the gate runs, from a file that is committed. It has configurations, bands, and what every configuration is
 * predicted to take on a cluster that is committed too. What is measured is the forward phase under the serial
 * schedule. Without the optimizer's long stream over memory, the terms that the gate watches are a tenth of an
 * iteration and more.
 *
 *     {"version": 1, "notes": ...,
 *      "model": "cpu-512",                     preset or file; "shape" replaces members of it
 *      "shape": {"layers": 1, "d_model": 256, "d_ffn": 512, "experts": 16},
 *      "links": "1x2 nvlink=...",              imitated while measuring (cluster.h)
 *      "cluster": "gate-cluster.json",         beside this file: what the stored predictions are for
 *      "tokens": 256,                          max per rank, of calibration and of any case; min measured: an eighth
 *      "steps": 2,                             points per case (after one that warms up)
 *      "bands": {"median": 0.05, "p90": 0.1, "order": 0.95, "changed": 1e-9, "points": 5},
 *      "cases": [{"policy": "ep", "tokens": 128, "top_k": 2, "skew": 4,
 *                 "predicted_s": [0.0123, ...],                     one per step
 *                 "control_s": {"mean_compute": [...], ...},
 *                 "trained_s": [...]}, ...]}                        a training step under the policy's own schedule
 *
 * Loads: an expert's popularity is a uniform number to the power "skew" (0: all alike), times one between 3/4 and 5/4
 * for each source. Every source's counts are these weights by largest remainder. Multiplications only, so the loads,
 * and with them the stored predictions, are the same on every machine. */
#pragma once
#include "models/json.h"
#include "sim/simulate.h"
#include "validate/compare/control.h"
#include "validate/experiment.h"

typedef struct {
  double median, p90; /* most error of the predictions */
  double order;       /* least share of pairs more than HEC_APART apart that are in the right order */
  double changed;     /* most distance of a prediction from the stored one */
  int64_t points;     /* fewest on which a control must matter */
} hec_gate_bands;

/* A point: a step of a case. */
typedef struct {
  double predicted_s, control_s[HEC_CONTROLS_MAX];
  double trained_s; /* training, under the policy's own schedule; stored, never measured */
} hec_gate_prediction;

typedef struct {
  const char *policy; /* name */
  int32_t tokens, top_k, skew;
} hec_gate_case;

typedef struct {
  char *model, *links, *notes, *cluster_name; /* as in the file */
  const char *cluster_path;                   /* where that is */
  hec_moe moe;
  hec_cluster links_cluster, cluster;
  hec_model *model_made; /* of moe, for calibration */
  int32_t tokens, n_steps, n_cases;
  int32_t shape[4]; /* layers, d_model, d_ffn, experts */
  hec_gate_bands bands;
  hec_gate_case *wanted;       /* [n_cases] */
  hec_experiment_case *cases;  /* [n_cases] for the links that are imitated */
  hec_gate_prediction *stored; /* [n_cases * n_steps]; predicted_s 0: the file has none yet */
} hec_gate_file;

/* Reads, and draws the loads. Memory: the arena's. */
hec_status hec_gate_read(const char *path, hec_arena *arena, hec_gate_file *file) HEC_MUST_USE;
/* The same file with these predictions. */
void hec_gate_write(const hec_gate_file *file, const hec_gate_prediction *predictions, hec_text *out);
/* What every point takes on the committed cluster: law and controls. predictions [n_cases * n_steps]. */
hec_status hec_gate_predict(const hec_gate_file *file, hec_gate_prediction *predictions) HEC_MUST_USE;
/* Uniform whole number weights of a case's load; exported for its test. */
void hec_gate_draw(uint64_t seed, int32_t skew, uint64_t assignments, hec_load *load);
