/* A system's data file: the compiled-in one of systems/, or a text. What may stand in it: scope.h. */
#ifndef HEC_VALIDATE_PUBLISHED_SYSTEM_FILE_H
#define HEC_VALIDATE_PUBLISHED_SYSTEM_FILE_H
#include "models/preset_data.h"
#include "validate/published/scope.h"

typedef struct {
  const char *name; /* of --system; systems/NAME.json */
  const char *text; /* the data; NULL: what is compiled in under that name */
} hec_system;

/* Every name in the file must be known. Free with hec_system_close. */
hec_status hec_system_open(const hec_system *system, hec_system_file *file) HEC_MUST_USE;
void hec_system_close(hec_system_file *file);

/* The files of systems/, made by the build. */
extern const hec_preset_data hec_system_data[];

#endif
