/* A tool and its commands as a table: it dispatches, and is listed by help, manual pages and completion. */
#pragma once

typedef struct {
  const char *name;                  /* "plan"; "sweep merge": a command of a command, which that one finds */
  const char *summary;               /* a line; NULL: found, but not listed */
  int (*run)(int argc, char **argv); /* argv[0] is the name; returns the exit code. NULL: see name */
  const char *group;                 /* heading of the list from here on; NULL: as before */
} hec_tool_command;

typedef struct {
  const char *name;                  /* "hecate-sim" */
  const char *summary;               /* a line, for manual pages */
  const char *description;           /* of a tool without `run`, for its help */
  const hec_tool_command *commands;  /* ends with a row without name */
  int (*run)(int argc, char **argv); /* where no command is named: options of its own; NULL: one must be */
} hec_tool;

/* All that a main does but for what must come first; returns the exit code. */
int hec_tool_main(const hec_tool *tool, int argc, char **argv);
/* The tool of this process; NULL: none. */
const hec_tool *hec_tool_running(void);
