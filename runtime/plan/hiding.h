/* What a schedule hides, as a planner needs to know it. The row of the schedule says so (program/lower.h), and a
 * policy finds it in its run. */
#pragma once
#include <stdbool.h>

typedef enum {
  HEC_HIDES_NOTHING, /* copies are gathered, and their gradients returned, in line with everything else */
  HEC_HIDES_DENSE,   /* beside attention and gate of the layer, forward and backward */
  HEC_HIDES_LAYER, /* beside a whole layer: gathers beside the one before, gradients beside the one that backward comes to */
} hec_hides;

typedef struct {
  hec_hides gathers, returns;
  bool chunked; /* tokens travel in chunks beside experts */
  bool by_node; /* a token may travel once per node */
} hec_hiding;
