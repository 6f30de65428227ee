/* What a peer is asked through: the program is started without a shell, so that no character of a path is run. */
#include "tests/support/test.h"
#include "validate/network_case.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

HEC_TEST_ARENA(arena)
static char scratch[] = "/tmp/hecate-peer-XXXXXX";

static void teardown(void) {
  hec_arena_free(&arena);
}
HEC_TEST_FIXTURE(NULL, teardown)

/* A peer that reads its argument and answers 0.5 s, finishes 1 and 2. */
static void write_peer(const char *path) {
  FILE *file = fopen(path, "w");
  ck_assert(file && fputs("#!/bin/sh\n[ $# = 1 ] && grep -q '^hosts 2 ' \"$1\" && echo 0.5 1 2\n", file) >= 0);
  ck_assert_int_eq(fclose(file), 0);
  ck_assert_int_eq(chmod(path, 0700), 0);
}

HEC_TEST(no_shell_reads_a_path) {
  ck_assert_ptr_nonnull(mkdtemp(scratch));
  ck_assert_int_eq(chdir(scratch), 0);
  const char *hostile = "a $(touch ran) `touch ran` \"; touch ran; \"";
  ck_assert_int_eq(mkdir(hostile, 0700), 0);
  write_peer("my peer");
  ck_assert_int_eq(setenv("TMPDIR", hostile, 1), 0);
  hec_flows flows;
  double seconds = 0, finish[2] = {0};
  hec_network_case(HEC_NETWORK_SWITCH, 2, 1, &arena, &flows);
  hec_status status = hec_network_peer("./my peer", &flows, &seconds, finish);
  bool ran = access("ran", F_OK) == 0;
  (void)unlink("ran");
  ck_assert_int_eq(unlink("my peer"), 0);
  ck_assert_int_eq(rmdir(hostile), 0); /* the case is gone */
  ck_assert_int_eq(rmdir(scratch), 0);
  ck_assert_msg(!ran, "a part of TMPDIR was run");
  ck_assert_msg(status == HEC_OK, "%s", hec_last_error());
  ck_assert(seconds == 0.5 && finish[0] == 1 && finish[1] == 2);
}

HEC_TEST(a_peer_that_is_not_there) {
  hec_flows flows;
  double seconds, finish[2];
  hec_network_case(HEC_NETWORK_SWITCH, 2, 1, &arena, &flows);
  ck_assert_int_eq(hec_network_peer("./absent --fast", &flows, &seconds, finish), HEC_BAD_INPUT);
  ck_assert_ptr_nonnull(strstr(hec_last_error(), "--peer: expected a program, without arguments, found \"./absent"));
  ck_assert_int_eq(hec_network_peer("false", &flows, &seconds, finish), HEC_FAILED);
}
