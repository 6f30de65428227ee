/* The sub-commands of hecate-validate, a file each. */
#pragma once
#include "runtime/base/status.h"

#include <stdbool.h>

/* argv[0] is the command; returns the exit code. */
int hec_published_command(int argc, char **argv);
int hec_calibrate_command(int argc, char **argv);
int hec_compare_command(int argc, char **argv);
int hec_gate_command(int argc, char **argv);
int hec_hardware_command(int argc, char **argv);
int hec_outcomes_command(int argc, char **argv);
int hec_trainer_command(int argc, char **argv);
int hec_training_command(int argc, char **argv);

/* What `calibrate --from` and `hardware --cases FOLDER` do with published tables of GPU measurements. */
bool hec_tables_is_folder(const char *path); /* NULL: no */

/* sister: as hec_judge_folder; out: a file for the report as text, or NULL. */
hec_status hec_tables_judge(const char *folder, const char *sister, const char *out, bool json) HEC_MUST_USE;

typedef struct {
  const char *from, *device, *law, *out;
  bool ablate, json;
} hec_tables_calibrate_args;
/* Fits the device's constants to the tables; out: the device file. */
hec_status hec_tables_calibrate(const hec_tables_calibrate_args *args) HEC_MUST_USE;
