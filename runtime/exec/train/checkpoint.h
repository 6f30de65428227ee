/* Checkpoints of a training run: everything that a later run needs to go on with the same losses, bit for bit.
 *
 *   FOLDER/step-00000050/             all of it, or not there: written as step-00000050.part, then renamed
 *     checkpoint.json                 which run it is of: its settings, an option and a value each
 *     loads                           [steps][n_micro_batches][n_layers][n_ranks][n_experts] what the gates chose, uint32
 *     rank-0000 ...                   of each rank: dense parameters and moments, then those of the experts it keeps, then the
 *                                     transitions that it counted
 *
 * Files but the first: a head, the numbers of this machine, a check sum. Plans are not saved. Policies and schedules decide by
 * the loads alone, so they decide again what they decided: whatever they remember is there, at the cost of planning.
 *
 * The newest checkpoint counts, and older ones are removed once it is in place. A process that is killed at any moment leaves
 * the last one that was. */
#pragma once
#include "runtime/exec/exec.h"
#include "runtime/exec/train/record.h"

enum { HEC_CHECKPOINT_SETTINGS_MAX = 32 };

/* What must be the same in the run that goes on: "--policy", "hecate". */
typedef struct {
  const char *option, *value;
} hec_checkpoint_setting;

typedef struct {
  const char *folder;
  int64_t every; /* steps between two; there is one after the last step, too */
  hec_checkpoint_setting setting[HEC_CHECKPOINT_SETTINGS_MAX];
  int32_t n_settings;
  int64_t step; /* finished in the checkpoint to go on from; 0: none */
} hec_checkpoint;

/* The newest checkpoint of the folder, which need not exist: checkpoint->step. HEC_BAD_INPUT: it is none, or of a run with
 * other settings. */
hec_status hec_checkpoint_find(hec_checkpoint *checkpoint) HEC_MUST_USE;
/* Before the launch. The folder, made where it is not there, and its file `.lock`, locked until this process ends: two runs that
 * write there would remove each other's checkpoints. HEC_BAD_INPUT: another run has it. Ranks that are forked from this
 * process do not hold the lock, so a run that is killed may be started again at once. */
hec_status hec_checkpoint_hold(const hec_checkpoint *checkpoint) HEC_MUST_USE;
/* The loads of its steps into the record, which is empty. */
hec_status hec_checkpoint_loads(const hec_checkpoint *checkpoint, hec_record *record) HEC_MUST_USE;
/* By every rank, with the plan in force as it was: its parameters, moments, transitions. */
hec_status hec_checkpoint_read(const hec_checkpoint *checkpoint, hec_record *record, hec_exec *exec,
                               hec_rank *rank) HEC_MUST_USE;
/* By every rank, between two steps; the record has `step` steps. */
hec_status hec_checkpoint_write(const hec_checkpoint *checkpoint, int64_t step, hec_record *record, hec_exec *exec,
                                hec_rank *rank) HEC_MUST_USE;
