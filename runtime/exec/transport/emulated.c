/* Shared memory that is held to the cluster's links. Bytes travel as in shm. The executor lets an exchange end no
 * earlier than the closed-form law (models/link_cost.h, alpha-beta) says, counted from the last post of a partner. It
 * shows compute, waiting and order on any machine, not the network. */
#include "runtime/exec/transport/shm.h"

const hec_transport hec_transport_emulated = {
    .name = "emulated",
    .summary = "shared memory, ends held to the alpha-beta law of the cluster's links",
    .law = "alpha_beta",
    .shares_memory = true,
    .adds = true,
    .held = true,
    .prepare = hec_shm_prepare,
    .open = hec_shm_open,
    .start = hec_shm_start,
    .test = hec_shm_test,
    .wait = hec_shm_wait,
    .close = hec_shm_close,
};
