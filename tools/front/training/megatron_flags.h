/* A training job as flags of Megatron-LM (Megatron Core 0.16), and Megatron-LM's own checks of them. Flags that it
 * would refuse are left out, and what the run then does otherwise than was predicted is said. Flags of the model,
 * its data and its optimizer are not among them: a run has those already. */
#pragma once
#include "models/training/step.h"
#include "runtime/program/pipelines/pipeline_schedule.h"

/* `pipeline`: NULL: the layout's default. `quoted`: for a shell. `differs`: sentences with "; " behind each, ""
 * where the flags do exactly what was predicted. */
void hec_megatron_flags(const hec_training *training, const hec_pipeline_schedule *pipeline, bool quoted,
                        hec_text *flags, hec_text *differs);

/* What arguments.py wants of the environment for them; NULL: nothing. */
const char *hec_megatron_environment(const char *flags);

/* A check of Megatron-LM on `flags` (not quoted) for a model on so many GPUs. */
typedef struct {
  const char *what, *source; /* "layers divide by stages"; where Megatron-LM checks it */
  bool (*holds)(const char *flags, const hec_training *training);
} hec_megatron_rule;
extern const hec_megatron_rule hec_megatron_rules[];
extern const int32_t hec_n_megatron_rules;
/* The first that `flags` break; NULL: Megatron-LM takes them. */
const hec_megatron_rule *hec_megatron_broken(const char *flags, const hec_training *training);
