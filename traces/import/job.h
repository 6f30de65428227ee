/* An import while it runs. Private to traces/import/. */
#pragma once
#include "traces/import/importer.h"
#include "traces/trace_header.h"

enum { HEC_IMPORT_MICRO_BATCHES = 4096 }; /* of a step; more is an error */

/* Why a file of no format is refused, and what works instead. `head`: its first n bytes, a zero byte behind. */
hec_status hec_import_dead_end(const char *path, const char *head, size_t n) HEC_MUST_USE;

/* Files read one after another; a row is waiting in each queue until its step comes. */
typedef struct {
  hec_import_file file;              /* the one being read */
  int32_t first_file, n_files;       /* in job->inputs */
  int32_t at;                        /* of n_files */
  bool is_open, ended, waiting, any; /* any: row of the file */
  const hec_import_input *from;      /* the last row that was taken: its file */
  int64_t from_step, from_line;      /* and its step, as the file says */
  const hec_import_input *checked;   /* the last step that was checked: its file */
  int64_t checked_step, stride;      /* how far it is behind the one before, -1: it is the file's first */
  hec_import_row row;                /* waiting; step as the trace will have it */
  int64_t file_step;                 /* the last one, as the file says */
  int64_t step_before;               /* the last one of the file before, -1: none */
  int64_t n_steps;                   /* begun: numbers them where there are several files */
} hec_import_queue;

/* A layer of the files. */
typedef struct {
  int64_t key;                /* with its pipeline stage: hec_import_staged() */
  int32_t n_micro_batches;    /* of this step */
  uint64_t step_total, total; /* assignments, of this step and of all that were written */
  bool dense;
  /* Transitions into it: */
  int64_t key_before;                   /* -1: none seen */
  uint64_t n_tokens, n_recent, n_fresh; /* n_recent: of them in job->recent; n_fresh: not yet of them, in job->fresh */
} hec_import_slot;

enum { HEC_LEFT_NAMES = 24 };
typedef struct {
  hec_import_left kind;
  char name[48], nearest[48]; /* nearest "": none */
  int64_t n;
} hec_import_left_name;

struct hec_import {
  const hec_importer *format;
  hec_import_options options;
  int32_t n_experts, top_k, n_ranks, n_sources, n_layers; /* n_sources: of the trace; n_layers: without dense ones */
  int32_t n_columns, n_stages, n_per_stage;               /* n_columns: ranks or sources that rows come from */
  hec_counted counted;
  hec_text words[2];  /* of all its files */
  int8_t has_kind[3]; /* 0: no file yet; 1: files have the column; -1: they do not */
  hec_text model, phase, notes, name, source, header_notes, beside; /* phase: "" where nobody said it */
  const hec_import_input **inputs;                                  /* by rank */
  hec_import_queue *queues;
  int32_t n_queues, n_inputs;

  hec_import_slot *slots; /* in order of appearance */
  size_t n_slots, slots_capacity;
  int32_t *order;    /* [n_slots] by key; since the first step */
  int32_t *block_at; /* [n_slots][HEC_IMPORT_MICRO_BATCHES] block of cells, -1: none */
  size_t block_at_capacity;
  uint32_t *cells; /* [n_blocks][n_columns][n_experts] */
  size_t n_blocks, cells_capacity;
  int32_t *n_rows; /* [n_slots][n_columns] rows of this step */
  size_t n_rows_capacity;
  size_t last_slot;

  int64_t step, last_iter, first_iter, n_records, n_empty; /* step -1: none yet */
  int32_t n_micro_batches, micro_batch;                    /* of the step; next to be handed out */
  bool settled;                                            /* layers are known */
  bool ended;
  uint32_t *counts; /* [n_layers][n_sources][n_experts] handed out */
  char label[128];
  uint64_t first_tokens, min_tokens, max_tokens; /* of records */
  bool said_layers;                              /* that their totals differ */
  bool said_impossible;                          /* that tokens cannot have chosen so */

  uint64_t recent_tokens; /* of a slot before they move, 0: as many as are safe (tests) */
  uint32_t *recent; /* [n_slots][n_experts][n_experts] transitions into a slot that are not in `transitions` yet */
  size_t recent_capacity;
  uint32_t *fresh; /* likewise, of the step at hand, where it may yet be left out */
  size_t fresh_capacity;
  uint64_t *transitions; /* [n_slots][n_experts][n_experts] into a slot; [n_layers - 1] of them in the header */
  size_t transitions_capacity;
  uint64_t *header_transitions;
  uint32_t *sorted; /* [n_experts + 1 + n_tokens x top_k] scratch */
  size_t sorted_capacity;
  bool no_transitions, knows_ranks;
  int32_t header_ranks; /* 0: as many as sources */

  hec_import_left_name left[HEC_LEFT_NAMES];
  size_t n_left_names, last_left;
  int64_t n_left[HEC_LEFT_KINDS]; /* also of names that are not kept */
  const struct hec_reading *axes; /* that --axes names and files were read by; NULL: none */
  int64_t shape[3];               /* of the file with the most tokens */
  int64_t n_rows_read, n_lines_read, n_steps_read, n_unwanted, n_incomplete;
  bool stopped; /* at --until */
};

/* stream.c */
/* `source`, of which the n bytes of `head` were read already, from its beginning. It takes `source` over; `close` leaves it
 * open, so that who has it may end it whether it was read or not. */
hec_source *hec_import_stream(hec_source *source, const char *head, size_t n);
void hec_import_stream_end(hec_source *stream); /* NULL: nothing */

/* inputs.c */
/* Sorts inputs by rank, checks that each is there once, and makes queues. */
hec_status hec_import_place(hec_import *job, const hec_import_input *inputs, int32_t n,
                            const hec_import_input **beside) HEC_MUST_USE;

/* steps.c: cells of a step */
hec_status hec_import_add_row(hec_import *job, const hec_import_queue *queue) HEC_MUST_USE;
hec_status hec_import_close_step(hec_import *job, bool last,
                                 bool *complete) HEC_MUST_USE; /* complete: as it should be */
void hec_import_gather(hec_import *job, int32_t micro_batch);
void hec_import_clear_step(hec_import *job);
const char *hec_import_layer_name(int64_t key, char name[64]);
static inline int64_t hec_import_staged(int64_t stage, int64_t layer) {
  return stage << 41 | layer;
}

static inline bool hec_import_wants(const hec_import *job, int64_t step) {
  return step >= job->options.first_step && (job->options.last_step < 0 || step <= job->options.last_step);
}

bool hec_import_phase_known(const char *phase);

/* left.c */
void hec_import_say_left(hec_import *job);               /* at the end: names */
void hec_import_sum_up(hec_import *job, hec_text *line); /* how much was read and left out */

/* totals.c */
void hec_import_judge_record(hec_import *job); /* the one in job->counts */
void hec_import_say_tokens(hec_import *job);   /* at the end */

/* paths.c */
void hec_import_count_paths(hec_import *job, size_t slot, const hec_import_row *row);
void hec_import_keep_paths(hec_import *job); /* of the step at hand, which is complete */
/* [n_layers - 1][n_experts][n_experts] of the trace's layers, or NULL: none, or not complete (noted). */
uint64_t *hec_import_transitions(hec_import *job);
