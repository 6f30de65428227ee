/* The schedules of FSMoE's comparison as programs of one rank, the balanced one, whose every operation is as long as a testbed
 * says. Their time is that of the walk (runtime/program/walk.h), never a planner's formula. */
#pragma once
#include "runtime/program/walk.h"
#include "validate/published/fsmoe_testbed.h"

/* What each does is in the .c: DeepSpeed-MoE, Tutel, Tutel-Improved, PipeMoE with Lina, FSMoE-No-IIO, FSMoE. */
typedef enum {
  HEC_FSMOE_DEEPSPEED,
  HEC_FSMOE_TUTEL,
  HEC_FSMOE_TUTEL_IMPROVED,
  HEC_FSMOE_LINA,
  HEC_FSMOE_NO_IIO,
  HEC_FSMOE_FSMOE,
  HEC_N_FSMOE_SYSTEMS
} hec_fsmoe_system;

/* What is decided before a program is built. */
typedef struct {
  hec_fsmoe_system system;
  int32_t forward;             /* degree */
  const hec_fsmoe_slot *slots; /* [layers] backward order: degrees, and what is reduced where (NO_IIO and FSMOE; others
                                  have degrees only) */
} hec_fsmoe_schedule;

typedef struct hec_fsmoe_bench hec_fsmoe_bench;
hec_fsmoe_bench *hec_fsmoe_bench_new(int32_t layers);
void hec_fsmoe_bench_free(hec_fsmoe_bench *bench); /* NULL is allowed */
HEC_OPENED_BY(hec_fsmoe_bench, hec_fsmoe_bench_free)

/* Milliseconds of forward and backward of `layers` such layers with their gradients reduced. The degrees of Tutel, Tutel-Improved
 * and Lina are tried, 1, 2, 4 and 8, and the fastest walk of Tutel counts, as Tutel does online. */
double hec_fsmoe_bench_ms(hec_fsmoe_bench *bench, const hec_fsmoe_case_study *study, hec_fsmoe_system system);

/* For tests: one schedule, and what was built and walked last. */
double hec_fsmoe_bench_walk(hec_fsmoe_bench *bench, const hec_fsmoe_case_study *study,
                            const hec_fsmoe_schedule *schedule);
const hec_program *hec_fsmoe_bench_program(const hec_fsmoe_bench *bench);
const hec_timeline *hec_fsmoe_bench_timeline(const hec_fsmoe_bench *bench);
