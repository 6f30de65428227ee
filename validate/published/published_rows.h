/* The rows of the comparison with the FSSDP paper (arXiv 2502.02581): what is measured, what the paper prints. */
#ifndef HEC_VALIDATE_PUBLISHED_ROWS_H
#define HEC_VALIDATE_PUBLISHED_ROWS_H
#include "validate/published/published_lab.h"

/* A number (low == high) or a range. */
typedef struct {
  double low, high;
} hec_span;

typedef enum {
  HEC_ROW_NUMBER, /* the paper prints a number or a range */
  HEC_ROW_SIGN,   /* the paper says who wins: above 1 */
  HEC_ROW_INFO,   /* not in the paper: shown beside it */
} hec_row_kind;

typedef struct {
  const char *key;      /* in JSON */
  const char *quantity; /* for people; every value is a ratio, and above 1 means what the text says */
  const char *where;    /* setting and model */
  hec_row_kind kind;
  hec_span paper;         /* numbers */
  const char *paper_text; /* as the paper prints it */
  const char *inputs;     /* the unknown inputs that this row depends on */
  bool sweep;             /* needs long runs, so it is left out of the objective of the search */
  hec_span (*measure)(hec_lab *lab, const hec_lab_models *models);
  const char *reading; /* what of it is our reading of the paper; NULL: nothing */
} hec_published_row;

extern const hec_published_row hec_published_rows[];
extern const int32_t hec_n_published_rows;
enum { HEC_PUBLISHED_ROWS_MAX = 48 };

/* The side of 1 that the paper's number lies on, -1, 0 (no statement) or 1; ranges: both ends must agree. */
int32_t hec_row_paper_side(const hec_published_row *row);
typedef enum { HEC_AGREES, HEC_DISAGREES, HEC_UNDEFINED } hec_verdict;
/* Undefined: no statement, or a value that could not be formed (nothing was exposed on either side). */
hec_verdict hec_row_verdict(const hec_published_row *row, hec_span ours);
/* Mean |ln(ours / paper)| of the ends; a number that could not be formed counts as ln 10. NAN without a number. */
double hec_row_distance(const hec_published_row *row, hec_span ours);

#endif
