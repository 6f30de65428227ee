/* The sub-commands of hecate-validate, a file each. */
#ifndef HEC_TOOLS_VALIDATE_VALIDATE_COMMANDS_H
#define HEC_TOOLS_VALIDATE_VALIDATE_COMMANDS_H

/* argv[0] is the command; returns the exit code. */
int hec_published_command(int argc, char **argv);
int hec_calibrate_command(int argc, char **argv);
int hec_compare_command(int argc, char **argv);
int hec_gate_command(int argc, char **argv);
int hec_hardware_command(int argc, char **argv);
int hec_outcomes_command(int argc, char **argv);
int hec_trainer_command(int argc, char **argv);
int hec_training_command(int argc, char **argv);

#endif
