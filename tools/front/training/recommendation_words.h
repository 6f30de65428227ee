/* What is said of a row of a recommendation: its words, the numbers beside them and why it is slower than the first. */
#pragma once
#include "tools/front/training/recommendation.h"

/* "tp=2 pp=8 ep=2" */
void hec_layout_words(const hec_layout *l, hec_text *out);
/* "norm+act", of "... recompute=norm+act ..."; it is in `text`. */
const char *hec_recipe_part(const hec_recipe *recipe, const char *part, hec_text *text);
/* "tp=2 pp=8 ep=2 with micro-batches of 1, dispatcher alltoall, recomputation norm" */
void hec_choice_words(const hec_layout_choice *choice, hec_text *out);
/* "row 2 (pp=4 ep=16, policy eplb)": how the table has the row with that index. */
void hec_recommended_row_words(const hec_recommendation *r, int32_t row, hec_text *out);
/* "4.6 s, 1.08x the recommended step, 70.8 GiB, which may not fit" */
void hec_recommended_cost_words(const hec_recommendation *r, const hec_recommended *of, hec_text *out);
double hec_memory_gib(const hec_training_memory *m);
/* Under the best policy, and its step. */
const hec_training_row *hec_recommended_row(const hec_recommended *r);
double hec_recommended_s(const hec_recommended *r);
/* Less is left than predicted peaks of such runs were too low. */
bool hec_recommended_may_not_fit(const hec_recommended *r);
hec_layout_reason hec_recommended_reason(const hec_recommended *best, const hec_recommended *slower);
/* What nobody stated: of the job, then of the recipe, whose text is in `recipe`. How many. */
int32_t hec_recommendation_assumed(const hec_recommendation *r, hec_text *recipe,
                                   const char *assumed[HEC_ASSUMED_MAX + 1]);
const char *hec_set_up_cluster(const hec_set_up *s);
