/* Whether the fastest rows stay in their order under another network law. */
#pragma once
#include "sim/compare.h"

/* Of a comparison under law alpha_beta, the winner and the systems within HEC_SUMMARY_NEAR of it are simulated once
 * more under law max_min, with the plans that they have there. The fastest come first, at most HEC_CROSSED_MAX. Each has the schedule of its row. Of long
 * traces and large jobs only every n-th iteration is; what is compared with is of the same iterations. summary->cross
 * stays NULL where the comparison was under another law, where there is nothing to compare, and where the job is too
 * large. The trace stands at its end before and afterwards. */
hec_status hec_cross_check(const hec_job *job, hec_trace_reader *reader, const hec_compare_options *options,
                           hec_arena *arena, hec_summary *summary) HEC_MUST_USE;
