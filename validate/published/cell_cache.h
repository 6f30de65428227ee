/* Where set-ups are simulated: each cell when it is first asked for, then kept; loads too. */
#pragma once
#include "validate/published/cell.h"
#include "validate/published/setup.h"

typedef struct {
  hec_setup base; /* what set-ups do not say */
  hec_loads_store *store;
  hec_loads_kind kind;    /* of series */
  const char *shared;     /* folder of recorded data; NULL: none */
  const char *cluster[2]; /* what "A" and "B" stand for */
  bool quick;
} hec_cell_cache_options;

typedef struct hec_cell_cache hec_cell_cache;

hec_cell_cache *hec_cell_cache_new(const hec_cell_cache_options *options);
void hec_cell_cache_free(hec_cell_cache *cache);
HEC_OPENED_BY(hec_cell_cache, hec_cell_cache_free)
const hec_cell_cache_options *hec_cell_cache_options_of(const hec_cell_cache *cache);

/* The cell of a set-up; NULL: its recorded data are not there (hec_cell_cache_absent). `setup`: what hec_setup_read gave, with the
 * name of a policy. */
hec_status hec_cell_cache_get(hec_cell_cache *cache, const hec_setup *setup, const hec_setup_cell **cell) HEC_MUST_USE;
/* What was missing since the last call, a file below the folder of recorded data; "" for a record beyond the last; NULL:
 * nothing. */
const char *hec_cell_cache_absent(hec_cell_cache *cache);

int32_t hec_cell_cache_count(const hec_cell_cache *cache); /* cells simulated so far */
const hec_setup_cell *hec_cell_cache_at(const hec_cell_cache *cache, int32_t i,
                                        hec_setup *setup); /* the i-th of them */

/* Numbers kept under a key, for measures that simulate in another way; *is_new: zeros to be filled in. */
enum { HEC_CELL_NUMBERS = 8 };
double *hec_cell_cache_numbers(hec_cell_cache *cache, const char *key, bool *is_new);
