/* What the axes of a bare table of numbers mean. [4][1024][2] may be 4 layers of 1,024 tokens, or the other way round.
 * [48][64] may be expert ids of tokens or counts of experts. Numbers do not say it. A reading is taken where --axes
 * names it, or where the others cannot be. Else the import is refused, and the message says what each reading would
 * mean. */
#pragma once
#include "traces/import/importer.h"

typedef enum { HEC_AXIS_TOKENS, HEC_AXIS_LAYERS, HEC_AXIS_TOP_K, HEC_AXIS_STEPS, HEC_AXIS_EXPERTS } hec_axis;

typedef struct hec_reading {
  const char *name; /* as --axes has it */
  int n;            /* axes */
  hec_axis axis[3]; /* the slowest first */
  bool counts;      /* numbers are counts of tokens, else ids of experts */
} hec_reading;

extern const hec_reading hec_readings[]; /* of each number of axes the documented one first; ends with name NULL */
/* The place of an axis in a reading, -1: it has none. */
int hec_reading_place(const hec_reading *reading, hec_axis axis);
bool hec_axes_known(const char *name); /* is it one of the table? */

/* What a format allows, and what is known of the array. */
typedef struct {
  int n;                /* axes */
  const int64_t *shape; /* [n]; NULL: not known before it is read */
  bool ids, counts;     /* the format has such readings */
  bool documented;      /* the format says that axes are those of the first reading */
} hec_axes_case;

/* Of a field of a file, in the light of the options and of what is known of the model. Files of a sequence are read alike:
 * file->words[0] keeps the name. */
hec_status hec_axes_choose(hec_import_file *file, int64_t line, const char *field, const hec_axes_case *of,
                           const hec_reading **reading) HEC_MUST_USE;
/* Keeps the sizes of an array that is read as --axes says: of all files those with the most tokens. */
void hec_axes_keep_sizes(hec_import *job, const hec_reading *reading, const int64_t *shape);
/* At the end: layers that are more than tokens, or than any model's, may be tokens. */
void hec_axes_say_sizes(hec_import *job);
