/* From --setup, --layout and the options beside them to a training job. It also gives the problem of one of the job's
 * expert-parallel groups to the placement policies. An option wins over the set-up's file, that over a default; every
 * default is said. */
#pragma once
#include "models/training/setup.h"
#include "runtime/program/job.h"
#include "runtime/program/pipelines/pipeline_schedule.h"
#include "sim/training.h"
#include "tools/front/option_list.h"
#include "traces/trace.h"

enum { HEC_ASSUMED_MAX = 24 };

typedef struct {
  hec_setup file; /* the set-up, options applied; name "": none was given */
  hec_moe moe;
  hec_gpu_laws laws;
  hec_training training;                 /* points into this struct, which must not move */
  const hec_pipeline_schedule *pipeline; /* NULL: not said */
  hec_job job; /* of one expert-parallel group: a rank stands for the etp GPUs that share its experts */
  double measured_step_s, factor; /* of --measured; 0: not given */
  bool measured_balanced;         /* that run forced the routing to be balanced */
  const char *assumed[HEC_ASSUMED_MAX];
  int32_t n_assumed;
} hec_set_up;

static inline bool hec_set_up_wanted(const hec_training_args *args) {
  return args->setup || args->layout;
}

/* Why an option of a job means nothing beside --layout; NULL: it is taken. */
const char *hec_set_up_refuses(const char *key);
/* Texts that no job can have: HEC_BAD_INPUT. Whether they suit the GPUs and each other, only the whole job says. */
hec_status hec_set_up_check_texts(const hec_training_args *args, hec_arena *arena) HEC_MUST_USE;

/* HEC_BAD_INPUT: a size that does not fit, with what would. An option of an iteration that means nothing here; parts of a job
 * without --layout or --setup. */
hec_status hec_set_up_make(const hec_training_args *args, const hec_job_options *options, hec_trace_reader *reader,
                           hec_arena *arena, hec_set_up *set_up) HEC_MUST_USE;
/* What a step takes from a cluster of a GPU: into the job, and into `sheet`, which has the GPU's. HEC_BAD_INPUT: the line says what a
 * step does not use; devices or links differ. */
hec_status hec_set_up_take_cluster(const hec_cluster *cluster, const char *spec, hec_training *t,
                                   hec_gpu_sheet *sheet) HEC_MUST_USE;
/* The options of a training job without --layout or --setup mean nothing: HEC_BAD_INPUT names the first. */
hec_status hec_set_up_unwanted(const hec_training_args *args) HEC_MUST_USE;
