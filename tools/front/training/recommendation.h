/* What to run: the fastest layout that fits, with as little recomputation as fits; the best policy for the trace's loads there.
 * Then why others lose, and how sure that is. */
#ifndef HEC_FRONT_RECOMMENDATION_H
#define HEC_FRONT_RECOMMENDATION_H
#include "sim/layout_search.h"
#include "tools/front/training/training_summary.h"

enum { HEC_RECOMMENDED_ROWS = 5, HEC_DOUBTS = 10 };

/* A layout under the loads of the trace. */
typedef struct {
  hec_layout_choice choice; /* balanced */
  hec_set_up *set_up;
  hec_training_summary policies;
  int32_t best; /* the fastest policy's row */
} hec_recommended;

typedef struct {
  hec_layout_found found;
  hec_recommended
      rows[HEC_RECOMMENDED_ROWS]; /* [n] fastest under the loads of the trace first: that one is recommended */
  int32_t n;
  bool has_today;
  hec_recommended today; /* what --layout or --setup says runs now; its policy is ep */
  int32_t n_first;       /* of HEC_DOUBTS changes of a constant by a tenth, how often the first stays first, balanced */
  double worst_regret;   /* what the first is slower than the best then, at most */
  int32_t records;       /* of the trace that --within leaves time for; 0: all that a step takes */
  const char *tool, *trace;
} hec_recommendation;

/* `args`: those of a training job; a layout in them is what runs today. Needs a global batch. HEC_FAILED: nothing fits into
 * memory; the message says what comes nearest. `within_s`: decides how many records are planned, by a count of the work and not by
 * a clock, so that the same input gives the same answer. */
hec_status hec_recommend(const hec_training_args *args, const hec_job_options *options, double within_s,
                         const hec_training_choice *policies, hec_trace_reader *reader, hec_arena *arena,
                         hec_recommendation *to) HEC_MUST_USE;

void hec_recommendation_screen(const hec_recommendation *r, hec_text *out);
void hec_recommendation_json(const hec_recommendation *r, hec_text *out);
/* Flags of Megatron-LM (core 0.13 and later), and a set-up for --setup. */
void hec_recommendation_megatron(const hec_recommendation *r, hec_text *out);
void hec_recommendation_setup(const hec_recommendation *r, hec_text *out);

#endif
