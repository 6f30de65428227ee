/* One line on a terminal for everything that takes longer than a second. It says what is being done, how far it is and
 * how long that may take. Whoever works says where it is; a thread of its own draws the line, so that it is there
 * however long a step lasts. Until hec_progress_begin all calls do nothing. Any thread may call; words are copied, up
 * to 63 bytes. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

typedef struct {
  const char *name;      /* of the program: the line begins with it */
  int file;              /* where the line is drawn */
  bool by_hand;          /* no thread: hec_progress_draw is called (tests) */
  double (*now_s)(void); /* NULL: the monotonic clock */
} hec_progress_options;

/* For programs, once; a terminal on which a line can be wiped is the caller's to know. */
void hec_progress_begin(const hec_progress_options *options);


/* A new piece of work begins, `units` of which are to be counted: ("sweep", "rows"). */
void hec_progress_stage(const char *what, const char *units);
/* What is done at the moment, within the stage: ("simulating", "hecate"); `object` may be NULL. */
void hec_progress_doing(const char *what, const char *object);
/* So many units are done, also parts of them; of 0: nobody knows. `given`: of these, from before this run (0 else); they do not
 * count for the time left. */
void hec_progress_at(double done, double of, double given);

/* The same for work that ends when a time is over, at the latest in `left_s` (above 1e6: nobody knows). */
void hec_progress_until(const char *what, double done, double left_s);

/* Draws the line where it is time to. */
void hec_progress_draw(void);
/* Wipes it, so that something else can be written; it comes again. */
void hec_progress_wipe(void);
/* For good: results follow. */
void hec_progress_end(void);
/* In a signal handler that will end the program: wiped, and not drawn again. */
void hec_progress_stop(void);

/* After a fork the parent draws nothing until its next stage: a child may. The child has no thread: where it calls
 * hec_progress_at it draws. Both are as if begun at the fork. */
