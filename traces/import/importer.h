/* Importers: what other recorders write, as rows of counts. A format is one file with one `const hec_importer` and one
 * row of HEC_IMPORTER_LIST. It says how its bytes begin and gives the rows of one file in the order of steps. Shared
 * code (import.c) finds the files, sorts them by rank and puts rows of a step together. It checks that none is
 * missing, leaves out dense layers, and writes. Memory: one step of all ranks, and per open file what its importer
 * keeps. */
#pragma once
#include "models/json.h"
#include "traces/scan.h"
#include "traces/trace.h"
#include "traces/trace_header.h"

/* In the order of --list, and of asking when content decides: narrow ones first. */
#define HEC_IMPORTER_LIST(X)                                                                                           \
  X(megatron_router_trace)                                                                                             \
  X(megatron_tokens_per_expert)                                                                                        \
  X(vllm_eplb)                                                                                                         \
  X(eplb_json)                                                                                                         \
  X(trtllm)                                                                                                            \
  X(npy_routed_experts)                                                                                                \
  X(json_routed_experts)                                                                                               \
  X(harmoeny)                                                                                                          \
  X(csv_counts)                                                                                                        \
  X(csv_ranks)

enum { HEC_IMPORT_LAYERS_MAX = 4096 }; /* of a trace, dense ones too; far above any model's */

/* What the user says; 0 and NULL: nothing. */
typedef struct {
  int64_t top_k, experts, layers, ranks, ep, pp;
  int64_t first_step, last_step; /* of those that are written; last_step -1: all */
  const char *counted, *phase, *name, *model, *method, *axes;
  bool sum;            /* micro-batches of a step are added up */
  bool renumber;       /* ranks are numbered anew, in order */
  bool no_transitions; /* do not count them */
  bool gaps;           /* steps, layers and lines of tables may be missing */
} hec_import_options;

typedef struct {
  const char *path;
  const char *bytes; /* [length] in its stead (tests, fuzzing); NULL: a file */
  size_t length;
  hec_source *stream; /* in its stead: opened when it was recognised; NULL: the path is to be opened */
} hec_import_input;

typedef struct hec_importer hec_importer;
typedef struct hec_import hec_import;

/* A file while it is read. */
typedef struct {
  hec_import *job;
  const hec_import_input *input;
  int32_t rank;    /* of its name or place, from 0 without gaps; 0 where ranks have no meaning */
  int32_t given;   /* as the name says it; -1: it does not */
  bool dated;      /* its steps are the recording's: the next file of a sequence must begin behind them */
  int64_t kept;    /* the importer's own, 0 first, kept over the files of a sequence */
  hec_text *words; /* [2] the importer's own, empty first, kept over all files */
  void *state;     /* likewise, of this file: [importer->state_bytes], 0 first */
} hec_import_file;

/* Counts of one step, layer and source (or part of its experts). Repeated within a step: the next micro-batch. */
typedef struct {
  int64_t step;
  int64_t layer;          /* hec_import_layer(); layers of the trace are in its order */
  int32_t source;         /* -1: the file's rank */
  int32_t first, n;       /* experts first..first+n-1 of the job's n_experts */
  const uint32_t *counts; /* [n], till the next call */
  bool goes_on;           /* more tokens of the row that this step, layer and source had last */
  int64_t line;           /* 0: the format has no lines */
  int64_t n_lines;        /* of a table, that make the row; 0: a row is as the file has it */
  /* Experts of every token in this layer and, of the same tokens in the same order, in the layer before; NULL: none. */
  const uint32_t *ids, *ids_before; /* [n_tokens][top_k] */
  const uint32_t *counts_before;    /* [n_experts] of ids_before */
  int64_t n_tokens, layer_before;
} hec_import_row;

/* Whose files are these: */
typedef enum {
  HEC_FILES_ONE_PER_RANK, /* the name has the rank */
  HEC_FILES_PARTS,        /* the name has the rank; a rank has several, of other layers */
  HEC_FILES_SEQUENCE,     /* one after another, no ranks */
  HEC_FILES_MAYBE_RANKS,  /* by rank where all names have one, several of a rank in order; else none has: a sequence */
} hec_import_files;

struct hec_importer {
  const char *name, *summary, *source; /* source: who writes such files, for --list */
  const char *pattern;                 /* of names in a folder; several: blanks between */
  const char *beside;                  /* a file that belongs to all (meta_info.json), or NULL */
  const char *behind; /* what layers of blocks behind the decoder are: "MTP blocks"; NULL: there are none */
  hec_import_files files;
  bool totals;         /* rows of all files add up: the source ranks are lost */
  bool repeats;        /* several rows of a step, layer and rank are its micro-batches; else an error */
  bool paths;          /* rows may have ids: transitions can be counted */
  bool numbered;       /* steps go on from file to file of a sequence (file->kept) */
  bool tail;           /* a last step without all its sources is left out, not an error */
  hec_counted counted; /* unless the user says */
  const char *phase;   /* likewise; NULL: the importer says it (hec_import_assume_phase) */
  /* Of a CSV: the columns that it must have, each "a|b", the last NULL; NULL: the format is no CSV with them. */
  const char *const *columns;
  bool axes; /* has tables whose axes --axes may name */
  /* Is it this format? `head`: the first bytes, gzip undone, with a zero byte behind. */
  bool (*recognise)(const char *head, size_t n);
  int32_t (*rank_of)(const char *path);                                 /* NULL: the number behind "rank"; -1: none */
  hec_status (*begin)(hec_import *job, const hec_import_input *beside); /* NULL: nothing; beside NULL: not there */
  size_t state_bytes;
  hec_status (*open)(hec_import_file *file) HEC_MUST_USE; /* NULL: nothing */
  hec_status (*next)(hec_import_file *file, hec_import_row *row, bool *more) HEC_MUST_USE;
  void (*close)(void *state); /* frees what is in it, also when `open` failed */
};

#define HEC_IMPORTER_DECLARE(name) extern const hec_importer hec_importer_##name;
HEC_IMPORTER_LIST(HEC_IMPORTER_DECLARE)
#undef HEC_IMPORTER_DECLARE
extern const hec_importer *const hec_importers[]; /* ends with NULL */
const hec_importer *hec_importer_find(const char *name);

/* ---- for importers ---- */

const hec_import_options *hec_import_options_of(const hec_import *job);
/* Facts of the whole trace. The first to say one sets it (the user before all files); who says another fails. `line` 0:
 * none. */
hec_status hec_import_set_experts(hec_import_file *file, int64_t line, const char *field, int64_t n) HEC_MUST_USE;
hec_status hec_import_set_top_k(hec_import_file *file, int64_t line, const char *field, int64_t n) HEC_MUST_USE;
hec_status hec_import_set_ranks(hec_import_file *file, int64_t line, const char *field, int64_t n) HEC_MUST_USE;
/* One model in all files, where --model does not name it. `model`: not empty. */
hec_status hec_import_set_model(hec_import_file *file, int64_t line, const char *field, const char *model) HEC_MUST_USE;
int32_t hec_import_experts(const hec_import *job); /* 0: nobody said */
int32_t hec_import_top_k(const hec_import *job);
int32_t hec_import_ranks(const hec_import *job); /* files' ranks */
const hec_import_input *hec_import_first(const hec_import *job);
void hec_import_set_sources(hec_import *job, int32_t n); /* of rows that name theirs */
void hec_import_know_ranks(hec_import *job);             /* that none is missing has been, or will be, checked */
/* Unless the user says, or a file has said (hec_import_set_phase). */
void hec_import_assume_phase(hec_import *job, const char *phase);
/* One phase in all files, where --phase does not name it; the field's text is checked. */
hec_status hec_import_set_phase(hec_import_file *file, int64_t line, const char *field, const char *phase) HEC_MUST_USE;
/* Of a format that may have ids of experts: these are counts, so there are no transitions, and nobody said when they were
 * counted. */
void hec_import_take_counts(hec_import *job);
/* A file that `begin` reads beside its inputs: hec_import_beside. */
void hec_import_reads(hec_import *job, const char *path);
/* What is left out of files: counted by name, and said at the end. `known`: the names [n] that are read, for the nearest. */
typedef enum { HEC_LEFT_KEY, HEC_LEFT_COLUMN, HEC_LEFT_LINE, HEC_LEFT_REQUEST, HEC_LEFT_KINDS } hec_import_left;
void hec_import_leave(hec_import *job, hec_import_left kind, const char *name, const char *const *known, size_t n);
/* A line of what is said at the end: kind "assumed" or "left out". */
void hec_import_note(hec_import *job, const char *kind, const char *words);
/* "assumed WHAT", once, however often it is said. */
void hec_import_assume(hec_import *job, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Layers by (block behind the decoder, layer): block 0 the decoder, 1.. the MTP blocks. Both below 2^20. */
static inline int64_t hec_import_layer(int64_t block, int64_t layer) {
  return block << 20 | layer;
}

/* FILE[:LINE]: FIELD: ... */
hec_status hec_import_fail(const hec_import_file *file, int64_t line, const char *field, const char *format, ...)
    __attribute__((format(printf, 4, 5))) HEC_MUST_USE;

/* A pipe or the like: to be read once, from its beginning to its end. */
bool hec_import_is_stream(const hec_import_input *input);
hec_status hec_import_source(const hec_import_input *input, hec_source **source) HEC_MUST_USE;
/* All of a file of at most so many bytes. */
hec_status hec_import_slurp(const hec_import_input *input, size_t max, hec_text *text) HEC_MUST_USE;

/* All of a JSON file of at most 1 MiB; to be freed. */
hec_status hec_import_read_json(const hec_import_input *input, hec_json **json) HEC_MUST_USE;
hec_status hec_import_scan(const hec_import_file *file, hec_scan *scan) HEC_MUST_USE; /* from its first byte */

/* A member of an object, which stands there at most once. */
typedef struct {
  const char *key; /* NULL: the end of the list */
  bool required;
  hec_status (*read)(void *state); /* NULL: a whole number from least to most, into the int64_t at `at` of the state */
  size_t at;
  uint64_t min, max;
} hec_import_field;
#define HEC_IMPORT_STEP_MAX ((UINT64_C(1) << 53) - 1) /* whole numbers that every reader of JSON has */
/* JSON Lines: the object of the next line that is not blank, *more false at the end. scan->line is that line. Other keys are
 * left out, and counted. */
hec_status hec_import_line(hec_import_file *file, hec_scan *scan, const hec_import_field *fields, void *state,
                           bool *more) HEC_MUST_USE;

bool hec_import_has(const char *head, size_t n, const char *word); /* for recognise */
