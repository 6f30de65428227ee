/* Every call of a device against plain double loops, on fresh random inputs: odd, large and zero sizes, at every offset
 * from an aligned place. What is written whole is poisoned before, and arrays lie between guards. The cases are written
 * once and run on any processor: arrays have a copy here and one there.
 *
 * Errors are relative: |found - expected| / |expected|, norms over the whole array, below HEC_CASE_TOLERANCE: float32 sums
 * of some hundred terms. Products are held number by number to what their precision promises (processor_products.c). */
#pragma once
#include "runtime/base/arena.h"
#include "runtime/exec/cuda/plugin.h"
#include "runtime/exec/math/processor.h"
#include "tests/support/check_main.h"

#define HEC_CASE_TOLERANCE 2e-6

/* Where the cases run; set before the suite does. */
typedef struct {
  hec_processor *on;
  hec_precision precision; /* of products */
  float *memory;           /* on the device, used again by every test */
  int64_t n_memory;
} hec_case_place;
extern hec_case_place hec_case;

extern uint64_t hec_case_seed;
extern hec_arena hec_case_arena; /* of the test that runs, on the host */

/* n numbers: here, as they were when made, and there. */
typedef struct {
  int64_t n;
  float *x;  /* [n] here; changing it changes nothing there (hec_case_send) */
  float *at; /* [n] there */
} hec_numbers;

/* Offsets from an aligned place of the arrays that are made next, in turn: 0: none, 1: one number, 2: all there are. */
enum { HEC_CASE_SHIFTS = 3 };
void hec_case_shift(int kind);
hec_numbers hec_case_random(int64_t n);   /* in [-1, 1) */
hec_numbers hec_case_poisoned(int64_t n); /* NaN */
hec_numbers hec_case_copy(hec_numbers of);
void hec_case_send(hec_numbers of); /* what is here goes there */
/* What is there now, [n], and that nothing around it was written. */
float *hec_case_fetch(hec_numbers of);
double *hec_case_doubles(int64_t n); /* zeros */

void hec_case_near(const float *found, const double *expected, int64_t n, double tolerance);
void hec_case_expect(const float *found, const double *expected, int64_t n);
void hec_case_expect_bytes(hec_numbers found, const float *expected); /* the CPU's */

/* Pieces of the suite. */
TCase *hec_case_numbers(void);
TCase *hec_case_products(void);
TCase *hec_case_rows(void);
TCase *hec_case_choices(void);
TCase *hec_case_streams(void);                         /* only where there are any */
Suite *hec_case_suite(const char *name, bool in_part); /* in part: what depends on precision and streams */
void hec_case_fixture(TCase *of);

static const int32_t hec_case_sizes[] = {0, 1, 7, 16, 33, 128, 1000};
enum { HEC_CASE_SIZES = sizeof hec_case_sizes / sizeof *hec_case_sizes };
