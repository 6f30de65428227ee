/* FSMoE's two testbeds (arXiv 2501.10714; reference policies.md 1.6) as linear laws, and its grid of 1,458 layers. All
 * times in milliseconds, all sizes in elements of 4 bytes. */
#ifndef HEC_VALIDATE_PUBLISHED_FSMOE_TESTBED_H
#define HEC_VALIDATE_PUBLISHED_FSMOE_TESTBED_H
#include "runtime/plan/planners/fsmoe.h"

/* start + size * per_size */
typedef struct {
  double start, per_size;
} hec_fsmoe_line;

typedef enum { HEC_FSMOE_SIMPLE, HEC_FSMOE_MIXTRAL, HEC_N_FSMOE_FFNS } hec_fsmoe_ffn; /* 2 and 3 matrices */
enum { HEC_FSMOE_LENGTHS = 3 };

typedef struct {
  const char *name;
  int32_t nodes, per_node; /* = experts, = ranks of a tensor and of an expert-sharding group */
  hec_fsmoe_line a2a, gather, scatter, reduce;
  hec_fsmoe_line experts[2][HEC_N_FSMOE_FFNS]; /* [backward][ffn]; size: factor * B * L * M * H / per_node */
  hec_fsmoe_line attention[HEC_FSMOE_LENGTHS]; /* of lengths[k], forward; size: FLOP / 1 of a rank, see the .c */
  hec_fsmoe_line attention_table;              /* the other reading: a line through the paper's Table 2 */
  int32_t lengths[HEC_FSMOE_LENGTHS];          /* L of the grid */
} hec_fsmoe_testbed;

extern const hec_fsmoe_testbed hec_fsmoe_testbed_a, hec_fsmoe_testbed_b;
/* A with 2, 4 or 6 nodes. */
hec_fsmoe_testbed hec_fsmoe_testbed_a_of(int32_t nodes);

/* A layer of the paper: `factor` multiplies the tokens (capacity factor times top-k, as the artifact's f). */
typedef struct {
  int32_t batch, heads, length, d_model, d_ffn;
  double factor;
  hec_fsmoe_ffn ffn;
} hec_fsmoe_shape;

enum { HEC_FSMOE_GRID = 1458 };
/* Configuration 0 <= i < HEC_FSMOE_GRID of a testbed; heads are in it, though no law depends on them. */
hec_fsmoe_shape hec_fsmoe_grid_shape(const hec_fsmoe_testbed *testbed, int32_t i);

/* A generalised layer on a testbed: what planners and programs are made from. */
typedef struct {
  hec_fsmoe_layer moe[2]; /* forward, backward */
  double dense[2];        /* attention, likewise */
  double gradient;        /* elements that are reduced between nodes */
  hec_fsmoe_reduce reduce;
} hec_fsmoe_case_study;
/* `table`: attention by the line through Table 2. */
hec_fsmoe_case_study hec_fsmoe_study(const hec_fsmoe_testbed *testbed, const hec_fsmoe_shape *shape, bool table);

#endif
