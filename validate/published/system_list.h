/* The rows of `hecate-validate published --system`: systems with public numbers, by age. */
#ifndef HEC_VALIDATE_PUBLISHED_SYSTEM_LIST_H
#define HEC_VALIDATE_PUBLISHED_SYSTEM_LIST_H

#define HEC_SYSTEM_LIST(X) X(fsmoe) X(llep)

#endif
