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

/* Those that begin with the word go before one that is near; a word of two letters begins too many. The dashes of options
 * do not make them alike. */
HEC_TEST(names_that_begin_with_the_word) {
  static const char *const known[] = {"mixtral-8x7b", "mixtral-8x22b", "tutel",    "tutel-improved", "--model",
                                      "--law",        "--layers",      "--layout", "--recipe",       "--gpus"};
  static const struct {
    const char *word, *hint;
  } cases[] = {{"Mixtral", " (did you mean \"mixtral-8x7b\" or \"mixtral-8x22b\"?)"},
               {"tutl", " (did you mean \"tutel\"?)"},
               {"tute", " (did you mean \"tutel\"?)"},
               {"tutel-", " (did you mean \"tutel-improved\"?)"},
               {"--lay", " (did you mean \"--layers\" or \"--layout\"?)"},
               {"--layot", " (did you mean \"--layout\"?)"},
               {"--lawe", " (did you mean \"--law\"?)"},
               {"--recip", " (did you mean \"--recipe\"?)"},
               {"--nodes", NULL},
               {"mi", NULL},
               {"mixtral-8x7b-long-name", NULL}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    HEC_SCOPED(hec_text) hint = {0};
    hec_nearest_search search = {.word = cases[i].word};
    for (size_t k = 0; k < sizeof known / sizeof known[0]; k++)
      hec_nearest_offer(&search, known[k]);
    hec_nearest_hint(&search, &hint);
    ck_assert_msg(cases[i].hint ? hint.length > 0 && strcmp(hint.data, cases[i].hint) == 0 : hint.length == 0, "%s: %s",
                  cases[i].word, hint.data ? hint.data : "");
  }
}

/* Of more names than a hint shows, the shortest. */
HEC_TEST(the_shortest_that_begin_with_the_word) {
  static const char *const known[] = {"deepseek-v3-base", "deepseek-v2", "deepseek-v2-lite", "deepseek",
                                      "deepseek-vl2"};
  hec_nearest_search search = {.word = "deep"};
  for (size_t k = 0; k < sizeof known / sizeof known[0]; k++)
    hec_nearest_offer(&search, known[k]);
  HEC_SCOPED(hec_text) hint = {0};
  hec_nearest_hint(&search, &hint);
  ck_assert_str_eq(hint.data,
                   " (did you mean \"deepseek\" or \"deepseek-v2\" or \"deepseek-vl2\" or \"deepseek-v3-base\"?)");
}
