/* The sub-commands of hecate-run, a file each. Call hec_math_open first, before any thread or fork. */
#pragma once

/* argv[0] is the command; returns the exit code. */
int hec_replay_command(int argc, char **argv);
int hec_train_command(int argc, char **argv);
int hec_alltoallv_command(int argc, char **argv);
