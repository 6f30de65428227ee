/* Where set-ups are simulated: each cell when it is first asked for, then kept; loads too. */
#ifndef HEC_VALIDATE_PUBLISHED_LAB_H
#define HEC_VALIDATE_PUBLISHED_LAB_H
#include "validate/published/cell.h"
#include "validate/published/setup.h"

typedef struct {
  hec_setup base; /* what set-ups do not say */
  hec_loads_store *store;
  hec_loads_kind kind;    /* of series */
  const char *shared;     /* folder of recorded data; NULL: none */
  const char *cluster[2]; /* what "A" and "B" stand for */
  bool quick;
} hec_lab_options;

typedef struct hec_lab hec_lab;

hec_lab *hec_lab_new(const hec_lab_options *options);
void hec_lab_free(hec_lab *lab);
const hec_lab_options *hec_lab_options_of(const hec_lab *lab);

/* The cell of a set-up; NULL: its recorded data are not there (hec_lab_absent). `setup`: what hec_setup_read gave, with the
 * name of a policy. */
hec_status hec_lab_get(hec_lab *lab, const hec_setup *setup, const hec_lab_cell **cell) HEC_MUST_USE;
/* What was missing since the last call, a file below the folder of recorded data; "" for a record beyond the last; NULL:
 * nothing. */
const char *hec_lab_absent(hec_lab *lab);

int32_t hec_lab_count(const hec_lab *lab);                                       /* cells simulated so far */
const hec_lab_cell *hec_lab_at(const hec_lab *lab, int32_t i, hec_setup *setup); /* the i-th of them */

/* Numbers kept under a key, for measures that simulate in another way; *is_new: zeros to be filled in. */
enum { HEC_LAB_NUMBERS = 8 };
double *hec_lab_numbers(hec_lab *lab, const char *key, bool *is_new);

#endif
