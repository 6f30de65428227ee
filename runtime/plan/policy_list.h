/* The rows of the policy table, in the order of reports: reference rows, then systems by age. */
#pragma once

#define HEC_POLICY_LIST(X)                                                                                             \
  X(ep)                                                                                                                \
  X(ep_balanced)                                                                                                       \
  X(ep_capacity)                                                                                                       \
  X(ideal)                                                                                                             \
  X(given)                                                                                                             \
  X(fsdp)                                                                                                              \
  X(fastermoe)                                                                                                         \
  X(janus)                                                                                                             \
  X(smartmoe)                                                                                                          \
  X(dataforest_remap)                                                                                                  \
  X(pb_oeplb)                                                                                                          \
  X(flexmoe)                                                                                                           \
  X(prophet)                                                                                                           \
  X(eplb)                                                                                                              \
  X(eplb_global)                                                                                                       \
  X(eplb_no_replicas)                                                                                                  \
  X(lplb)                                                                                                              \
  X(micromoe)                                                                                                          \
  X(eplb_match)                                                                                                        \
  X(eplb_online)                                                                                                       \
  X(flashlb)                                                                                                           \
  X(craft)                                                                                                             \
  X(hecate)                                                                                                            \
  X(hecate_published)                                                                                                  \
  X(hecate_rm)                                                                                                         \
  X(hecate_nosharding)                                                                                                 \
  X(hecate_nomaterialisation)                                                                                          \
  X(echo)                                                                                                              \
  X(harmoeny)                                                                                                          \
  X(llep)                                                                                                              \
  X(moonep)                                                                                                            \
  X(ultraep)                                                                                                           \
  X(megaflux)                                                                                                          \
  X(feplb)                                                                                                             \
  X(taot)                                                                                                              \
  X(hiermoe)                                                                                                           \
  X(exflow)                                                                                                            \
  X(moetuner)                                                                                                          \
  X(symi)                                                                                                              \
  X(laer)                                                                                                              \
  X(joint)
