/* A network law: one file law_NAME.c with everything static except one hec_law, and one row in simulate.h. The engine
 * knows who has posted; the law decides when transfers run and tells the engine when a rank is done with an exchange.
 * Not asked of it: exchanges with kernels of a dispatcher, and of token counts, which alpha_beta prices under every law. */
#pragma once
#include "runtime/plan/problem.h"
#include "sim/engine.h"

struct hec_law {
  const char *name, *summary, *source, *limits;
  /* Times are alpha_beta's: a walk (runtime/program/walk.h) prices programs, and this law is not asked. */
  bool closed_form;
  void (*open)(hec_engine *engine, hec_exchange *x);                        /* the first rank has posted */
  void (*ready)(hec_engine *engine, hec_exchange *x, int32_t transfer);     /* both ends have posted, now */
  void (*flow_done)(hec_engine *engine, hec_exchange *x, int32_t transfer); /* a flow started by the law ended, now */
  void (*allreduce)(hec_engine *engine, hec_exchange *x);                   /* every rank has posted, now */
};
