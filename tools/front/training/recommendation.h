/* What to run: the fastest layout that fits, with as little recomputation as fits; the best policy for the trace's loads there.
 * Then why others lose, and how sure that is. */
#pragma once
#include "sim/layout_search.h"
#include "tools/front/training/training_summary.h"

enum { HEC_RECOMMENDED_ROWS = 5, HEC_DOUBTS = 10, HEC_RECORD_WINDOWS = 4 };

/* A layout under the loads of the trace. */
typedef struct {
  hec_layout_choice choice; /* balanced */
  hec_set_up *set_up;
  hec_training_summary policies;
  int32_t best; /* the fastest policy's row */
} hec_recommended;

static inline const hec_training_result *hec_recommended_best(const hec_recommended *r) {
  return &r->policies.rows[r->best].result;
}

typedef struct {
  int32_t n, n_first;
  double worst_regret;
  int32_t faster; /* the row that is faster where the first loses most; 0: it never loses */
} hec_doubt;

typedef struct {
  hec_layout_found found;
  hec_recommended
      rows[HEC_RECOMMENDED_ROWS]; /* [n] fastest under the loads of the trace first: that one is recommended; then the
                                     fastest other layout and the fastest of other ep */
  int32_t n;
  hec_recommended plain; /* the fastest layout with ep: what a framework without placement policies runs */
  /* Of the layouts that were simulated, the fastest with ep whose flags of Megatron-LM do exactly what was predicted:
   * row `megatron_row` of the table. Where there is none it is `plain`, and the row -1. Layouts slower than `plain` are
   * left out before anyone asks whether Megatron-LM runs them, so there may be a faster one. */
  hec_recommended megatron;
  int32_t megatron_row;
  /* Of found.n_all: estimated under the loads; certainly slower than the best estimate; left for want of time; then simulated
   * under the loads. */
  int32_t n_estimated, n_beaten, n_left, n_simulated;
  /* Of n_simulated: the best estimates; fast with balanced routing, where those were too few. The rest runs today. */
  int32_t n_promising, n_even;
  bool has_today, has_today_with;
  hec_recommended today;      /* what --layout or --setup says runs now; its policy is ep */
  hec_recommended today_with; /* the same with the dispatcher of the recommendation, where nobody said today's */
  /* How often the first stays first, and what it is slower than the best then, at most: */
  hec_doubt constants; /* of HEC_DOUBTS changes of a constant by a tenth */
  hec_doubt records;   /* of parts of the trace's records, each alone */
  hec_doubt law;       /* links at their data-sheet rates instead of the measured ones */
  int32_t n_records;   /* of the trace, for the first choice; rows that are shown have all that a step takes */
  const char *tool, *trace;
  const char *left_out; /* named policies that are not recommended, such as "ideal"; NULL: none */
} hec_recommendation;

/* The same layout, recipe and policy. */
bool hec_recommended_same(const hec_recommended *a, const hec_recommended *b);
/* The row of the table that is the same; -1: none. */
int32_t hec_recommendation_find(const hec_recommendation *r, const hec_recommended *like);
/* Whether flags of Megatron-LM do exactly what was predicted with ep. */
bool hec_choice_suits_megatron(const hec_layout_choice *choice);

/* `args`: those of a training job; a layout in them is what runs today. Needs a global batch. HEC_FAILED: nothing fits into
 * memory; the message says what comes nearest. `within_s` decides how many layouts are
 * estimated and how many records are planned. It counts work and reads no clock, so that the same input gives the same
 * answer. */
hec_status hec_recommend(const hec_training_args *args, const hec_job_options *options, double within_s,
                         const hec_training_choice *policies, hec_trace_reader *reader, hec_arena *arena,
                         hec_recommendation *to) HEC_MUST_USE;

/* Counts `constants`, `records` and `law` of rows that are there. */
hec_status hec_recommendation_doubt(hec_recommendation *r) HEC_MUST_USE;

/* How far off the first row's time may be. That of times relative to a measured run holds for runs of the same recipe: where
 * the row has another one than what runs today, or nobody said what was measured, `why` says so. */
const hec_band *hec_recommendation_band(const hec_recommendation *r, hec_text *why);
/* What to run, and what it gains. */
void hec_recommendation_verdict(const hec_recommendation *r, hec_text *out);
void hec_recommendation_screen(const hec_recommendation *r, hec_text *out);
void hec_recommendation_json(const hec_recommendation *r, hec_text *out);
/* Flags of Megatron-LM, which has no placement policies: of `megatron`. `quoted`: for a shell; `differs`: from what was predicted,
 * "" if in nothing (megatron_flags.h). A set-up for --setup: of the first row; `file` is what it is
 * written to, for paths in it are relative to its folder. */
void hec_recommendation_megatron(const hec_recommendation *r, bool quoted, hec_text *out, hec_text *differs);
const hec_pipeline_schedule *hec_recommendation_pipeline(const hec_recommended *recommended);
hec_status hec_recommendation_setup(const hec_recommendation *r, const char *file, hec_text *out) HEC_MUST_USE;

/* Which of the frameworks' files run the first row, and which another: sentences. */
void hec_recommendation_runs(const hec_recommendation *r, hec_text *words);
/* What carries it out: a file for each framework, and what-to-change.md, which says what each was written for and cannot say. */
enum { HEC_RECOMMENDATION_FILES = 7 };
extern const char *const hec_recommendation_files[HEC_RECOMMENDATION_FILES];
/* Their texts, in that order, to be written into `folder`; "" where there is nothing to say. Reads the trace. */
hec_status hec_recommendation_write(const hec_recommendation *r, const char *folder, hec_trace_reader *reader,
                                    hec_arena *arena, hec_text text[HEC_RECOMMENDATION_FILES]) HEC_MUST_USE;
