/* What calibrate and compare share: the options, the job, the session (validate/session.h) and its launch. And how its
 * results come from rank 0 to the one who speaks.
 *
 *     hec_session_run_open, then the caller's cases, then hec_session_run_launch; hec_session_run_close on every way out */
#pragma once
#include "runtime/program/job.h"
#include "tools/front/execution.h"
#include "tools/front/handover.h"
#include "tools/validate/session_report.h"

enum { HEC_SESSION_RANKS = 2, HEC_SESSION_LAYERS = 2, HEC_SESSION_TOKENS = 128, HEC_SESSION_ROUNDS_MAX = 1000 };

typedef struct {
  hec_job_options job;
  hec_target_args target;
  const char *trace;    /* NULL: none, the shape comes from --model alone */
  int64_t repeat, seed; /* repeat 0: as many as there is time for */
  double within_s;
  bool list;
} hec_session_args;

#define HEC_OPTIONS_SESSION "cluster model ranks tokens layers phase"
extern const hec_run_option_words hec_session_words[];

/* clang-format off */
#define HEC_SESSION_TIME_ROWS(a, default_time) \
  HEC_ARG_TIME("--within", (a).within_s, "TIME", "how long all of it may take, such as 90s or 6m (default " default_time "). It ends sooner once every time is known within 1 %.", 0.001, 1e6), \
  HEC_ARG_WHOLE("--repeat", (a).repeat, "N", "exactly N rounds in which everything is executed once, unless the time is over (default: until every time is known well enough, at least 5)", 1, HEC_SESSION_ROUNDS_MAX)

#define HEC_SESSION_TARGET_ROWS(a) \
  HEC_ARG_TARGET("Execution", (a).target, "backend transport precision virtual timeout", NULL), \
  {"--list", HEC_ARG_FLAG, &(a).list, NULL, "list backends, transports, policies, schedules and presets", 0, 0}
/* clang-format on */

hec_session_args hec_session_args_default(void);

typedef struct {
  const char *tool; /* the command and its version */
  const hec_session_args *args;
  const char *folder,
      *file; /* of --out, which is one or the other; NULL: not asked for. Checked before anything runs */
  const hec_timeline_format *timelines; /* of folder */
  const char *calibration;              /* read; NULL: none */
  hec_target target;
  hec_arena arena;
  bool launched;
  bool no_virtual; /* what is compared has no virtual time; set by the caller */
  hec_trace_reader *reader;
  hec_text kept;
  hec_job job;
  hec_model model;
  const hec_collective *collective;
  hec_execution execution;
  hec_summary head;
  char date[32];
  hec_session session;
  hec_handover handover;
  /* Rank 0, after the session: texts for whoever started it, in an order that `take` knows. */
  hec_status (*report)(void *context, hec_handover *handover);
  void *context;
} hec_session_run_state; /* must not move */

/* --list and --backend list: prints what was asked for; false: neither was. */
bool hec_session_run_list(const hec_session_args *args);
/* Backend, trace or shape, job, model, the head of the report. HEC_BAD_INPUT when ranks would take turns on cores: no
 * calibration describes that. */
hec_status hec_session_run_open(hec_session_run_state *run) HEC_MUST_USE;
/* What carries the messages, as a calibration says it: "virtual", or the name of a link or transport. */
const char *hec_session_run_carrier(const hec_session_run_state *run);
/* `compare`: cases, or none; its rounds and seed are the arguments'. `given`: a calibration made before, or NULL; given_probe_s: its
 * pace (session.h). In the process that speaks: takes the texts. */
hec_status hec_session_run_launch(hec_session_run_state *run, const hec_comparison_options *compare,
                                  const hec_cluster *given, double given_probe_s,
                                  hec_status (*take)(void *context, hec_handover *handover)) HEC_MUST_USE;
/* Prints the failure if there is one and this process speaks; the exit code. */
int hec_session_run_close(hec_session_run_state *run, hec_status status);
