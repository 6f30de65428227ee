/* See the header. */
#include "validate/markdown.h"

#include <string.h>

hec_piece hec_piece_trimmed(hec_piece piece) {
  while (piece.n > 0 && piece.at[0] == ' ')
    piece.at++, piece.n--;
  while (piece.n > 0 && piece.at[piece.n - 1] == ' ')
    piece.n--;
  return piece;
}

bool hec_piece_starts(hec_piece piece, const char *with) {
  size_t n = strlen(with);
  return piece.n >= n && memcmp(piece.at, with, n) == 0;
}

hec_piece hec_markdown_line(const char *text) {
  return (hec_piece){text, strcspn(text, "\n")};
}

const char *hec_markdown_after(hec_piece line) {
  return line.at + line.n + (line.at[line.n] == '\n');
}

int hec_markdown_cells(hec_piece line, hec_piece cell[HEC_MARKDOWN_COLUMNS_MAX]) {
  int n = 0;
  size_t begin = 1;
  for (size_t i = 1; i < line.n && n < HEC_MARKDOWN_COLUMNS_MAX; i++)
    if (line.at[i] == '|') {
      cell[n++] = hec_piece_trimmed((hec_piece){line.at + begin, i - begin});
      begin = i + 1;
    }
  return n;
}

bool hec_markdown_is_rule(hec_piece line) {
  return line.n > 1 && line.at[1] == '-';
}

bool hec_markdown_to_the_right(hec_piece cell) {
  return cell.n > 0 && cell.at[cell.n - 1] == ':';
}
