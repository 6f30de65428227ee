#!/usr/bin/env bash
# No sentence of README.md, docs/ or a help text has more than 25 words; CHANGELOG.md begins with about ten lines. How long the
# sentences of comments are is said, not tested.
# The counting is tested on a text whose numbers are known.
# Usage: test_sentences.sh BUILD_DIR
source "$(dirname "$0")/../support/tool.sh"
count=$source_dir/tests/tidy/sentences.py
command -v python3 >/dev/null || { echo "SKIPPED tidy.sentences: no python3"; exit 77; }

# ---- The counting ----
long=$(printf 'word %.0s' {1..25})last.
# counted KIND FILE SENTENCES LONG
counted() {
  python3 "$count" "$1" "$2" >out.txt || fail "$2: exit code $?"
  grep -q "^$1: $3 sentences, mean .* words, $4 above 25\$" out.txt || fail "$2: expected $3 and $4, found $(cat out.txt)"
}
printf '# A heading is none\n\nOne. Two, e.g. this; `a code of. many words` here.\n\n- %s\n- Four.\n\n```\n%s\n```\n\n| %s | x |\n' \
  "$long" "$long" "$long" >page.md
counted docs page.md 5 2
python3 "$count" docs --max 2 page.md >out.txt || fail "--max 2"
python3 "$count" docs --max 1 page.md >out.txt && fail "--max 1 is not exceeded"
grep -q '^page.md:5: 26 words: word' out.txt || fail "no place: $(cat out.txt)"
printf '/* One. %s\n *\n *     a picture\n * Three. */\nint x; /* Four. */\nconst char *s = "/* none. */"; // Five.\n' "$long" >code.c
counted comments code.c 5 1
printf 'usage: a [options]\n\nOne.\n\n  --two X   %s\n            Three.\n  --four    Four.\n\nExamples\n  hecate-sim five.\n' "$long" >help.txt
counted help help.txt 5 1

# ---- The texts ----
python3 "$count" docs --max 0 "$source_dir"/README.md "$source_dir"/docs/*.md || fail "README.md or docs/: shorter sentences"
for tool in hecate-sim hecate-run hecate-trace hecate-validate hecate-bench; do
  "$build/$tool" --help all >"help-$tool.txt" || fail "$tool --help all"
  while read -r command; do
    # shellcheck disable=SC2086 # "sweep merge" is two words
    "$build/$tool" $command --help all >"help-$tool-${command// /-}.txt" || fail "$tool $command --help all"
  done < <("$build/$tool" --help=complete | sed -n 's/^command\t\([^\t]*\)\t.*/\1/p')
done
python3 "$count" help --max 0 help-*.txt || fail "help texts: shorter sentences"
[ "$(wc -l <"$source_dir/README.md")" -le 150 ] && ! grep -nE '.{121}' "$source_dir/README.md" || fail "README.md: expected 150 lines of 120 columns at most"
# What a user notices of a version: about ten lines, each once.
sed -n '/^What a user notices:/,/^### /s/^- \*\*\([^*]*\)\*\*.*/\1/p' "$source_dir/CHANGELOG.md" >noticed.txt
[ "$(wc -l <noticed.txt)" -ge 8 ] && [ "$(wc -l <noticed.txt)" -le 12 ] || fail "CHANGELOG.md: $(wc -l <noticed.txt) lines of what a user notices"
[ -z "$(sort noticed.txt | uniq -d)" ] || fail "CHANGELOG.md: twice: $(sort noticed.txt | uniq -d)"

(cd "$source_dir" && find models runtime sim tools traces validate -name '*.[ch]' -print0 | xargs -0 python3 "$count" comments)
[ $failures -eq 0 ] || exit 1
