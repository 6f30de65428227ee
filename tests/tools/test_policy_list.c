/* --policy as a list: where rows end, what they are called, and what is refused. */
#include "tests/support/test.h"
#include "tools/front/job_args.h"

#include <string.h>

HEC_TEST_ARENA(arena)

static const struct {
  const char *list, *names; /* separated by blanks */
} lists[] = {
    {"llep", "llep"},
    {"ep,llep:cap=1.50,min=7,hecate", "ep llep:cap=1.5,min=7 hecate"},
    {"llep,llep:cap=1.5,llep:cap=2", "llep llep:cap=1.5 llep:cap=2"},
    {"llep:min=512,cap=1", "llep:cap=1,min=512"},
    {"eplb:period=50,hecate:t=paper,m=3,ep", "eplb:period=50 hecate:t=paper,m=3 ep"},
};

HEC_TEST(rows_of_a_list) {
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
    const hec_policy *policies[HEC_POLICIES_MAX];
    int32_t n;
    HEC_SCOPED(hec_text) names = {0};
    ck_assert_msg(hec_job_args_policies(lists[i].list, &arena, policies, &n) == HEC_OK, "%s", hec_last_error());
    for (int32_t p = 0; p < n; p++)
      hec_text_printf(&names, "%s%s", p ? " " : "", policies[p]->name);
    ck_assert_str_eq(names.data, lists[i].names);
  }
}

static const struct {
  const char *list, *error;
} wrong[] = {
    {"", "--policy: expected"},
    {"ep,", "found \"\""},
    {"ep,all", "--policy: expected all alone or a list of policies, found \"ep,all\""},
    {"lep", "(did you mean \"llep\"?), found \"lep\""},
    {"llep:cap=1,llep:cap=1.0", "--policy: \"llep:cap=1\" is named twice"},
    {"llep:min=2,cap=1,ep,llep:cap=1,min=2", "--policy: \"llep:cap=1,min=2\" is named twice"},
    {"ep,llep:cap=x,hecate", "--policy llep: cap: expected a number from 0.01 to 1000, found \"x\""},
    {"ep,cap=1", "found \"ep,cap=1\""}, /* no options without a colon */
    {"llep:,ep", "--policy llep: expected threshold=VALUE, cap=VALUE, min=VALUE, found \"\""},
    {"llep:cup=1", "found \"cup=1\" (did you mean \"cap\"?)"},
    {"all:cap=1", "found \"all\""},
};

HEC_TEST(wrong_lists) {
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    const hec_policy *policies[HEC_POLICIES_MAX];
    int32_t n;
    ck_assert_int_eq(hec_job_args_policies(wrong[i].list, &arena, policies, &n), HEC_BAD_INPUT);
    ck_assert_msg(strstr(hec_last_error(), wrong[i].error) != NULL, "%s: %s", wrong[i].list, hec_last_error());
  }
}

HEC_TEST(as_many_as_there_is_room_for) {
  HEC_SCOPED(hec_text) list = {0};
  for (int i = 1; i < HEC_POLICIES_MAX; i++)
    hec_text_printf(&list, "%sllep:cap=%d", i > 1 ? "," : "", i);
  const hec_policy *policies[HEC_POLICIES_MAX];
  int32_t n;
  ck_assert_int_eq(hec_job_args_policies(list.data, &arena, policies, &n), HEC_OK);
  ck_assert_int_eq(n, HEC_POLICIES_MAX - 1);
  hec_text_add(&list, ",ep");
  ck_assert_int_eq(hec_job_args_policies(list.data, &arena, policies, &n), HEC_BAD_INPUT);
  ck_assert_msg(strstr(hec_last_error(), "expected at most 63") != NULL, "%s", hec_last_error());
}
