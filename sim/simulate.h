/* The simulator: executes a program on a cluster under a network law and returns its timeline.
 *
 * There are two ways, and they agree to the picosecond (a test). In a law in closed form an exchange's times depend
 * only on when its ranks post. Under such a law, on devices that communication does not slow down, the program is
 * walked in id order, one visit per (operation, rank). Everything else runs through the event engine. */
#pragma once
#include "runtime/program/timeline.h"

typedef struct hec_problem hec_problem; /* runtime/plan/problem.h */

typedef struct hec_law hec_law;
#define HEC_LAW_LIST(X) X(alpha_beta) X(max_min) X(nccl_rounds)
#define HEC_LAW_DECLARE(name) extern const hec_law hec_law_##name;
HEC_LAW_LIST(HEC_LAW_DECLARE)
extern const hec_law *const hec_laws[]; /* NULL-terminated */
const hec_law *hec_law_find(const char *name);
const char *hec_law_name(const hec_law *law);
const char *hec_law_summary(const hec_law *law);
const char *hec_law_limits(const hec_law *law); /* what it does not model */

/* The law as a policy that compares whole iterations asks it (lower.h): what hec_sim_run gives, in seconds. */
const struct hec_pricer *hec_law_pricer(const hec_law *law);

typedef struct hec_sim hec_sim;

/* One simulator per problem; its memory is reused from program to program. */
hec_sim *hec_sim_new(const hec_problem *problem, const hec_law *law, hec_arena *arena);
void hec_sim_free(hec_sim *sim);
HEC_OPENED_BY(hec_sim, hec_sim_free)

/* Timelines of programs already run, for simulators of one problem and law, in any threads. In one iteration several
 * policies often have one program (all that have not moved anything yet), and the event engine takes long. By content
 * (hec_program_times_digest), so what is found is what a run would have given. */
typedef struct hec_sim_memo hec_sim_memo;
hec_sim_memo *hec_sim_memo_new(void);
void hec_sim_memo_free(hec_sim_memo *memo);
void hec_sim_memo_clear(hec_sim_memo *memo); /* while nobody runs */
/* The simulator looks there first. Not where programs are walked: that is as fast as looking. */
void hec_sim_share(hec_sim *sim, hec_sim_memo *memo);

typedef struct {
  bool without_one_off; /* one-off operations take no time and wait for no other rank: what an ordinary iteration costs
                         */
  bool force_engine;    /* for tests: never the walk */
  bool goes_on;         /* the programs before are still there, as in walk.h: changes nothing but how long it takes */
  bool on_time;         /* no start skew: rows that are bounds, for whom a late rank might have been given less to do */
} hec_sim_options;

/* A program longer than HEC_TIME_END_PS ends there: its times then mean nothing but "too long". */
void hec_sim_run(hec_sim *sim, const hec_program *program, hec_sim_options options, hec_timeline *timeline);
