/* The rows of `hecate-validate published --system`: systems with public numbers, systems/NAME.json each, by age. */
#pragma once

#define HEC_SYSTEM_LIST(X)                                                                                             \
  X(fsmoe)                                                                                                             \
  X(fastermoe)                                                                                                         \
  X(janus)                                                                                                             \
  X(smartmoe)                                                                                                          \
  X(flexmoe)                                                                                                           \
  X(prophet)                                                                                                           \
  X(symi)                                                                                                              \
  X(eplb)                                                                                                              \
  X(lplb)                                                                                                              \
  X(harmoeny)                                                                                                          \
  X(hiermoe)                                                                                                           \
  X(micromoe)                                                                                                          \
  X(llep)                                                                                                              \
  X(moonep)                                                                                                            \
  X(laer)                                                                                                              \
  X(ultraep)                                                                                                           \
  X(taot)
