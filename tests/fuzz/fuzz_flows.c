/* Any bytes as a flow case: an error, or a case that both laws can run. */
#include "sim/flows.h"

#include <math.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  HEC_SCOPED(hec_arena) arena = {0};
  hec_flows flows;
  if (hec_flows_parse((const char *)data, size, "fuzz", &arena, &flows) == HEC_OK) {
    double *finish = HEC_NEW(&arena, double, flows.n_flows);
    for (int32_t i = 0; hec_flows_law_name(i); i++) {
      if (hec_flows_run(&flows, hec_flows_law_name(i), finish) != HEC_OK)
        abort();
      for (int32_t f = 0; f < flows.n_flows; f++)
        if (!(finish[f] >= flows.flow[f].start && finish[f] < INFINITY))
          abort();
    }
  }
  return 0;
}
