/* What is said of pipeline stages that were executed: for people, and as JSON. Rows: those of the summary, of which the times of
 * steps and the checks are known. `memory`: [rows][ranks of the layout]. */
#pragma once
#include "runtime/exec/pipeline.h"
#include "runtime/program/summary.h"
#include "tools/front/stages.h"

void hec_stages_table(hec_summary *summary, const hec_stages *stages, const hec_stage_memory *memory, hec_text *out);
void hec_stages_json(hec_summary *summary, const hec_stages *stages, const hec_stage_memory *memory, hec_text *out);
