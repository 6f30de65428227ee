/* A model's shape from the config.json that Hugging Face transformers writes beside its weights.
 *
 * Such a file has a "model_type". It names widths and counts, but not how a model is trained: sequence length, bytes of
 * gradients and optimizer are assumed, and `said` tells so. Known families: mixtral, deepseek_v2, deepseek_v3, kimi_k2,
 * qwen2_moe, qwen3_moe, qwen3_next, olmoe, gpt_oss, llama4 (the text model inside it), glm4_moe, minimax_m2. Others are read by the same keys where
 * they have them. */
#pragma once
#include "models/json.h"
#include "models/moe.h"

/* Whether a document is such a config.json, not a file of our own form (moe.h). */
bool hec_hf_config_is(const hec_json_value *root);

/* Fills `moe`; not checked yet (hec_moe_check). `origin` names the file. `said`: appended to, for people: which key gave which
 * number, what is not modelled, then HEC_HF_ASSUMED and what training adds. NULL: nobody asks. HEC_BAD_INPUT names file, line
 * and key: no experts (a dense model), a missing or wrong value. */
#define HEC_HF_ASSUMED "; assumed:"
hec_status hec_hf_config_read(const hec_json *json, const char *origin, hec_moe *moe, hec_text *said) HEC_MUST_USE;
