/* Names that were mistyped: the nearest known one, and none where nothing is near. */
#include "runtime/base/nearest.h"
#include "tests/support/test.h"

#include <string.h>

HEC_TEST(slips_of_the_keyboard) {
  static const char *const known[] = {"step", "layer", "routed_experts", "mtp_idx", "model_name"};
  static const struct {
    const char *word, *nearest;
  } cases[] = {{"stpe", "step"},
               {"Step", "step"},
               {"steps", "step"},
               {"layr", "layer"},
               {"routed-experts", "routed_experts"},
               {"routedexperts", "routed_experts"},
               {"mtp_indx", "mtp_idx"},
               {"model", NULL},
               {"note", NULL},
               {"", NULL},
               {"routed_experts_of_a_name_that_is_much_longer_than_any_that_is_known_to_hecate", NULL}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *found = hec_nearest(cases[i].word, known, sizeof known / sizeof *known);
    ck_assert_msg(cases[i].nearest ? found && strcmp(found, cases[i].nearest) == 0 : !found, "%s: %s", cases[i].word,
                  found ? found : "none");
  }
  ck_assert_ptr_null(hec_nearest("step", NULL, 0));
}
