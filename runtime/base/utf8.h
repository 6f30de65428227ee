/* Texts of others: what is a character in them, and what of them may go to a terminal. */
#pragma once
#include <stddef.h>

/* Bytes of the UTF-8 character at p (RFC 3629: shortest form, no surrogates, at most U+10FFFF); 0: not one. */
size_t hec_utf8_length(const char *p);
/* For terminals: control characters of a foreign text (C0, DEL, C1) and what is no UTF-8 become '?', in place. */
void hec_make_plain(char *string);
/* As much of a foreign name as fits into `size` bytes with the zero: cut at the begin of a character, not inside one. */
void hec_name_copy(char *to, size_t size, const char *from);
