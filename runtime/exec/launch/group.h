/* A group: consecutive ranks of a launch that see themselves as a launch of their own, numbered from 0. What works on all
 * ranks (the executor, collectives of the launch, checks of a program) then works on a pipeline stage.
 *
 *     launch   0 1 2 3 | 4 5 6 7        stage 1 is a group with first 4: its rank 2 is rank 6 of the launch
 *
 * The memory, the failure record and the channels are the launch's, so messages of a group and of the launch may
 * alternate. A failure inside a group ends the whole launch. It names the rank by its number in the launch. */
#pragma once
#include "runtime/exec/launch/rank.h"

typedef struct hec_group hec_group;

/* `rank` is one of the n_ranks from `first` on. No device, no virtual time: its turns are the launch's. */
hec_group *hec_group_new(hec_rank *rank, int32_t first, int32_t n_ranks);
hec_rank *hec_group_rank(hec_group *group); /* this rank as the group sees it */
void hec_group_free(hec_group *group);      /* no post may be in progress but after a failure; NULL: nothing */
