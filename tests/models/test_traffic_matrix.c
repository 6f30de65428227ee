/* The text form of a traffic matrix: read, written, every message with line and column. */
#include "models/traffic_matrix.h"
#include "tests/support/test.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

HEC_TEST_ARENA(arena)

static hec_status parse(const char *text, hec_traffic_matrix *m) {
  return hec_traffic_matrix_parse(text, strlen(text), "m.txt", &arena, m);
}

/* The example of nccl-tests' src/alltoallv.cu, laid out as there; blanks, tabs, empty lines, whole numbers with a point. */
HEC_TEST(forms) {
  static const char *const texts[] = {"     100  200  150\n     50   100  75\n     300  150  200\n",
                                      "\n100\t200 150 \r\n\n50 100 75\n \n300 150 200",
                                      "1e2 2.00e+02 150.0\n+50 1000e-1 75\n300 150 200\n\n"};
  static const int64_t wanted[] = {100, 200, 150, 50, 100, 75, 300, 150, 200};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    hec_traffic_matrix m;
    ck_ok(parse(texts[i], &m));
    ck_assert(m.n == 3 && memcmp(m.bytes, wanted, sizeof wanted) == 0);
    ck_assert_int_eq(hec_traffic_matrix_size(&m), 650); /* rank 2 sends 650; received: 450, 450, 425 */
  }
}

/* Random matrices, some sparse, one of the largest numbers: what is written reads back equal, and writes the same bytes. */
HEC_TEST_LOOP(round_trip, 40) {
  uint64_t seed = 100 + (uint64_t)_i;
  int32_t n = 1 + (int32_t)hec_test_below(&seed, 40);
  hec_traffic_matrix m = {n, HEC_NEW(&arena, int64_t, n * n)}, back;
  for (int32_t i = 0; i < n * n; i++) {
    uint64_t kind = hec_test_below(&seed, 4);
    m.bytes[i] = kind == 0 ? 0 : kind == 1 ? (int64_t)1 << 50 : (int64_t)hec_test_below(&seed, (uint64_t)1 << 50);
  }
  HEC_SCOPED(hec_text) once = {0}, twice = {0};
  hec_traffic_matrix_write(&m, &once);
  ck_ok(parse(once.data, &back));
  ck_assert(back.n == n && memcmp(back.bytes, m.bytes, (size_t)(n * n) * sizeof *m.bytes) == 0);
  hec_traffic_matrix_write(&back, &twice);
  ck_assert_str_eq(once.data, twice.data);
}

static const struct {
  const char *text, *message;
} wrong[] = {
    {"", "m.txt:1:1: expected a square matrix of bytes, found nothing"},
    {" \n\n", "m.txt:1:1: expected a square matrix"},
    {"0 1\n2\n", "m.txt:2:2: expected 2 numbers, as in the first line, found 1"},
    {"0 1\n2 3 4\n", "m.txt:2:5: expected 2 numbers, as in the first line, found more"},
    {"0 1\n2 3\n4 5\n", "m.txt:3:1: expected 2 lines of 2 numbers, found another line"},
    {"0 1 2\n3 4 5\n", "expected 3 lines of 3 numbers, found 2"},
    {"0 x\n1 2\n", "m.txt:1:3: expected whole bytes from 0 to 2^50, found \"x\""},
    {"0 1\n\n 2 -3\n", "m.txt:3:4: expected whole bytes from 0 to 2^50, found \"-3\""},
    {"0 1.5\n1 2\n", "m.txt:1:3: expected whole bytes"},
    {"0 1e16\n1 2\n", "m.txt:1:3: expected whole bytes"},
    {"0 1125899906842625\n1 2\n", "m.txt:1:3: expected whole bytes"},
    {"0 0x10\n1 2\n", "found \"0x10\""},
    {"0 nan\n1 2\n", "found \"nan\""},
    {"0 inf\n1 2\n", "found \"inf\""},
    {"0,1\n1,2\n", "m.txt:1:1: expected whole bytes from 0 to 2^50, found \"0,1\""},
    {"0 1\n1 \001\n", "found \"?\""},
    {"0 1e\n1 2\n", "found \"1e\""},
    {"0 00000000000000000000000000000000000000000000000000000000000000000000001\n1 2\n", "m.txt:1:3: expected whole"},
};

HEC_TEST_ROWS(messages, wrong) {
  hec_traffic_matrix m;
  ck_refused(parse(wrong[_i].text, &m), wrong[_i].message);
}

HEC_TEST(too_wide) {
  HEC_SCOPED(hec_text) text = {0};
  hec_traffic_matrix m;
  for (int i = 0; i < 4097; i++)
    hec_text_add(&text, "0 ");
  ck_refused(parse(text.data, &m), "at most 4096 columns");
  ck_assert_int_eq(hec_traffic_matrix_read("/nowhere/m.txt", &arena, &m), HEC_BAD_INPUT);
  ck_assert_int_eq(hec_traffic_matrix_read("/tmp", &arena, &m), HEC_BAD_INPUT);
}
