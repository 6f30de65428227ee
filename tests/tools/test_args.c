/* Options as a table. Every row is set by "--name value" and "--name=value", and what is no value of its kind is refused
 * with the option's name. One parser serves every command, so what is tested here need not be tried on each. */
#include "tests/support/test.h"
#include "tools/front/options.h"

#include <stdio.h>
#include <string.h>

enum { WORDS = 8 };

typedef struct {
  bool flag;
  int64_t whole, size;
  double real;
  const char *text, *first;
  int32_t n;
  bool done;
} parsed;

/* Parses the words up to NULL. */
static hec_status parse(parsed *p, const char *const words[WORDS]) {
  *p = (parsed){.whole = -7, .real = -7, .size = -7};
  double bytes = -7;
  const hec_arg args[] = {HEC_ARG_TITLE("Numbers"),
                          HEC_ARG_WHOLE("--whole", p->whole, "N", "a number", 0, 2000),
                          HEC_ARG_REAL("--real", p->real, "X", "a number", 0, 1),
                          HEC_ARG_SIZE("--size", bytes, "B", "bytes", 1, 1e15),
                          HEC_ARG_TITLE("Others"),
                          HEC_ARG_WORD("--text", p->text, "WORD", "a word"),
                          {"--flag", HEC_ARG_FLAG, &p->flag, NULL, "yes", 0, 0},
                          {.name = NULL}};
  const hec_command command = {.program = "hecate-test", .usage = "hecate-test", .summary = "", .args = args};
  char *argv[WORDS + 1] = {"hecate-test"};
  int argc = 1;
  for (; words[argc - 1]; argc++)
    argv[argc] = (char *)(uintptr_t)words[argc - 1];
  hec_status status = hec_args_parse(&command, argc, argv, &p->first, 1, &p->n, &p->done);
  p->size = (int64_t)bytes;
  return status;
}

#define PARSE(p, ...) parse(p, (const char *const[WORDS]){__VA_ARGS__})

static void refused(const char *words, const char *const argv[WORDS]) {
  parsed p;
  ck_refused(parse(&p, argv), words);
}
#define REFUSED(words, ...) refused(words, (const char *const[WORDS]){__VA_ARGS__})

HEC_TEST(both_ways_of_writing) {
  parsed p;
  ck_ok(PARSE(&p, "--whole", "12", "--real", "0.25", "--size", "3G"));
  ck_assert(p.whole == 12 && p.real == 0.25 && p.size == 3000000000 && !p.flag && !p.text && p.n == 0);
  ck_ok(PARSE(&p, "--whole=13", "--real=1e-1", "--size=1", "--flag", "--text=a=b"));
  ck_assert(p.whole == 13 && p.real == 0.1 && p.size == 1 && p.flag);
  ck_assert_str_eq(p.text, "a=b");
  ck_ok(PARSE(&p, "trace", "--text", "--flag")); /* whatever follows is its value */
  ck_assert(!p.flag && p.n == 1);
  ck_assert_str_eq(p.text, "--flag");
  ck_assert_str_eq(p.first, "trace");
  ck_ok(PARSE(&p, "--whole=0", "--", "--flag"));
  ck_assert(p.whole == 0 && !p.flag);
  ck_assert_str_eq(p.first, "--flag");
  ck_ok(PARSE(&p, "-"));
  ck_assert_str_eq(p.first, "-");
  ck_ok(PARSE(&p, NULL));
  ck_assert(p.whole == -7 && p.real == -7 && p.n == 0); /* unchanged */
}

HEC_TEST(what_is_missing_or_too_much) {
  static const char *const valued[] = {"--whole", "--real", "--size", "--text"};
  for (size_t i = 0; i < sizeof valued / sizeof *valued; i++) {
    char words[64];
    (void)snprintf(words, sizeof words, "%s: expected a value, found the end of the command", valued[i]);
    REFUSED(words, "--flag", valued[i]);
  }
  REFUSED("--flag: takes no value, found \"1\"", "--flag=1");
  REFUSED("unknown option \"--none\"; see hecate-test --help", "--none");
  REFUSED("unknown option \"--whol\"", "--whol=1");
  REFUSED("unexpected argument \"b\"; see hecate-test --help", "a", "b");
  REFUSED("unexpected argument \"--\"", "--", "a", "--");
  REFUSED("--text: given twice, the second time \"b\"", "--text", "a", "--text=b");
  REFUSED("--help: expected all, man, complete or nothing behind it, found \"nonsense\"", "--help=nonsense");
  REFUSED("--version: takes no value, found \"1\"", "--version=1");
}

/* "3" is the only way to write it. */
HEC_TEST(numbers_are_plain) {
  static const char *const not_whole[] = {"",    " 3",  "3 ",  "-0", "+3",   "03",  "0x3",
                                          "3.0", "3e0", "nan", "-1", "2001", "1e1", "99999999999999999999"};
  for (size_t i = 0; i < sizeof not_whole / sizeof *not_whole; i++) {
    char words[128];
    (void)snprintf(words, sizeof words, "--whole: expected a whole number from 0 to 2000, found \"%s\"", not_whole[i]);
    REFUSED(words, "--whole", not_whole[i]);
  }
  static const char *const not_real[] = {"", " 1", "1 ", "-0", "0x1p-1", "nan", "inf", "1.5", "-1", "1e999", "0.5x"};
  for (size_t i = 0; i < sizeof not_real / sizeof *not_real; i++) {
    char words[128];
    (void)snprintf(words, sizeof words, "--real: expected a number from 0 to 1, found \"%s\"", not_real[i]);
    REFUSED(words, "--real", not_real[i]);
  }
  static const char *const not_size[] = {"", "0", "3X", "3GB", "1e30", "-1", "G", "nan"};
  for (size_t i = 0; i < sizeof not_size / sizeof *not_size; i++)
    REFUSED("--size: expected", "--size", not_size[i]);
}

HEC_TEST(lists_are_plain) {
  const hec_args_list list = {"--lags", 1, 1000, 16};
  int32_t values[16], n = 0;
  ck_ok(hec_args_wholes(&list, "1,20,1000", values, &n));
  ck_assert(n == 3 && values[0] == 1 && values[1] == 20 && values[2] == 1000);
  ck_ok(hec_args_wholes(&list, "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16", values, &n));
  ck_assert_int_eq(n, 16);
  static const char *const bad[] = {"",
                                    "1,,2",
                                    ",1",
                                    "1,",
                                    " 1",
                                    "1, 2",
                                    "-1",
                                    "0",
                                    "1001",
                                    "01",
                                    "+1",
                                    "1x",
                                    "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    char words[160];
    (void)snprintf(words, sizeof words,
                   "--lags: expected up to 16 whole numbers from 1 to 1000 with commas, found \"%s\"", bad[i]);
    ck_assert_int_eq(hec_args_wholes(&list, bad[i], values, &n), HEC_BAD_INPUT);
    ck_assert_str_eq(hec_last_error(), words);
  }
}

/* ---- Options that describe a run ---- */

static hec_status parse_job(hec_job_options *job, const char *keys, const char *const words[WORDS]) {
  const hec_run_option_words own[] = {{"tokens", NULL, "our own words"}, {.key = NULL}};
  const hec_arg rows[] = {HEC_ARG_JOB("Job", *job, keys, own), {.name = NULL}};
  const hec_command command = {.program = "hecate-test", .usage = "", .summary = "", .args = rows};
  hec_args args;
  int n = 0;
  while (words[n])
    n++;
  *job = HEC_JOB_OPTIONS;
  hec_args_begin(&command, &args);
  ck_assert_str_eq(args.row[0].name, "Job");
  for (int i = 1; args.row[i].name; i++)
    if (strcmp(args.row[i].name, "--tokens") == 0)
      ck_assert_str_eq(args.row[i].help, "our own words");
  for (int i = 0; i < n; i++)
    HEC_TRY(hec_args_set(&args, n, words, &i));
  return HEC_OK;
}
#define PARSE_JOB(job, keys, ...) parse_job(job, keys, (const char *const[WORDS]){__VA_ARGS__})

HEC_TEST(job_options_reach_their_members) {
  hec_job_options job;
  const char *keys = HEC_OPTIONS_JOB " " HEC_OPTIONS_POLICY " " HEC_OPTIONS_DENSE;
  ck_ok(PARSE_JOB(&job, keys, "--micro-batches", "3", "--t=paper", "--nonmoe-scale", "0.5", "--mp=2"));
  ck_assert(job.micro_batches == 3 && job.t == HEC_T_PAPER && job.nonmoe_scale == 0.5 && job.mp == 2);
  ck_assert(job.m == HEC_AUTO && job.warmup == -1 && job.tokens == 0 && !job.model); /* left as without the option */
  ck_assert_str_eq(job.law, "alpha_beta");
  ck_ok(PARSE_JOB(&job, keys, "--t", "7"));
  ck_assert_int_eq(job.t, 7);
  ck_assert_int_eq(PARSE_JOB(&job, keys, "--t", "papers"), HEC_BAD_INPUT);
  ck_assert_str_eq(hec_last_error(), "--t: expected a whole number from 0 to 1000000 or \"paper\", found \"papers\"");
  ck_assert_int_eq(PARSE_JOB(&job, keys, "--micro-batches", "0"), HEC_BAD_INPUT);
  ck_assert_int_eq(PARSE_JOB(&job, HEC_OPTIONS_JOB, "--mp", "2"), HEC_BAD_INPUT); /* in none of its groups */
  ck_assert_ptr_nonnull(strstr(hec_last_error(), "unknown option \"--mp\""));
}

HEC_TEST(job_options_are_told_apart) {
  for (int32_t i = 0; i < HEC_N_OPTIONS; i++) {
    char flag[64];
    (void)snprintf(flag, sizeof flag, "--%s", hec_run_rows[i].key);
    for (char *c = flag; *c; c++)
      *c = *c == '_' ? '-' : *c;
    ck_assert_ptr_eq(hec_run_option_find(hec_run_rows[i].key), &hec_run_rows[i]);
    ck_assert_ptr_eq(hec_run_option_find(flag), &hec_run_rows[i]);
    ck_assert_int_eq(hec_run_option_is_number(&hec_run_rows[i]), hec_run_rows[i].max > 0);
  }
  ck_assert_ptr_null(hec_run_option_find("--micro"));
}

HEC_TEST(keys_become_flags) {
  HEC_SCOPED(hec_text) text = {0};
  hec_args_add_flags("a.json: `micro_batches`: `ep`, not `Ep`, ``, `a b` nor `t", &text);
  ck_assert_str_eq(text.data, "a.json: --micro-batches: --ep, not `Ep`, ``, `a b` nor `t");
}
