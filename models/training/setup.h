/* A set-up: a training job in one file. Model, GPUs, layout, batch, recipe and pipeline; what it leaves out is chosen by who
 * reads it.
 *
 *     {"name": "deepseek-v3-2048-h800", "model": "deepseek-v3", "device": "h800", "gpus": 2048,
 *      "layout": "pp=16 ep=64", "pipeline": "dualpipe", "seq": 4096, "global_batch": 15360, "micro_batch": 1, "mtp": 1,
 *      "recipe": "precision=fp8-block dispatcher=deepep",
 *      "published": {"gpu_hours_per_1e12_tokens": 180e3}, "sources": {"layout": "where it is from"}}
 *
 * `cluster` (preset, line or file) may stand instead of `device`: its GPU, its nodes and its NICs. `published`: what its source
 * measured, to be shown beside the prediction. Paths of a model, a device or a cluster are relative to the file's folder, that of
 * a device file in a cluster's line, too. */
#pragma once
#include "runtime/base/arena.h"
#include "runtime/base/status.h"

typedef struct {
  const char *name;
  const char *model, *device, *cluster, *layout, *recipe, *pipeline; /* NULL: not said */
  int32_t gpus, seq, global_batch, micro_batch;                      /* 0: not said */
  int32_t mtp;                                                       /* multi-token prediction layers */
  double capacity; /* of an expert, over the mean; 0: none is dropped */
  struct {
    double step_s, tokens_per_s_per_gpu, model_tflops_per_gpu, mfu, gpu_hours_per_1e12_tokens; /* 0: not published */
  } published;
} hec_setup;

/* `spec`: a preset's name (models/presets/setup-NAME.json, with or without "setup-"), else the path of a JSON file. Texts are
 * copies on the arena. Errors name file, line and field. Paths are as hec_setup_load's caller sees them; hec_setup_parse
 * leaves them as they are written. */
hec_status hec_setup_load(const char *spec, hec_arena *arena, hec_setup *setup) HEC_MUST_USE;
hec_status hec_setup_parse(const char *text, size_t length, const char *origin, hec_arena *arena,
                           hec_setup *setup) HEC_MUST_USE;

/* A recipe by name (models/presets/recipe-NAME.json: {"name", "recipe", "sources"}) as its text, or the text itself where it has a
 * "=" in it or is empty. */
hec_status hec_setup_recipe(const char *spec, hec_arena *arena, const char **text) HEC_MUST_USE;
