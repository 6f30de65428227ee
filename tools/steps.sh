# shellcheck shell=bash
# What gpu-check and cluster-check share: steps with limits, their results as rows of a report. Sourced after setup.sh, when
# `seconds` is the time for everything together and `steps` the names of those that shall run, or all.
#
#   step NAME NEEDS FUNCTION      runs a step if it is asked for and NEEDS seconds are left
#   result STEP HOW WHAT          a row; detail TITLE FILE: a section below the table
#   limited SECONDS LOG COMMAND   runs a command; said RC LOG: what became of it
#   number FILE KEY [OBJECT]      of a summary.json

# Seconds since the start, by the one clock that steps are held to.
clock_started=$(date +%s)
elapsed() { echo $(($(date +%s) - clock_started)); }

work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
: >"$work/table"
: >"$work/details"

# result STEP passed|failed|skipped WHAT: a row of the report and a line for whoever watches.
result() {
  local took=$(($(elapsed) - began))
  printf '%-10s %-8s %s (%d s)\n' "$1" "$2" "$3" "$took"
  printf '| %s | %s | %s | %d s |\n' "$1" "$2" "${3//|/\\|}" "$took" >>"$work/table"
  case $2 in
  passed) n_passed=$((n_passed + 1)) ;;
  failed) n_failed=$((n_failed + 1)) ;;
  skipped) n_skipped=$((n_skipped + 1)) ;;
  esac
}

# detail TITLE FILE: the end of the file as a section of the report.
# shellcheck disable=SC2016 # the quotes of Markdown
detail() {
  printf '\n## %s\n\n```\n%s\n```\n' "$1" "$(tail -n 400 "$2")" >>"$work/details"
}

left() { echo $((seconds - $(elapsed))); }

# The last lines of a log, as one.
words_of() { tail -n 3 "$1" | tr -s '\n\t ' ' ' | cut -c 1-300 | sed 's/ $//'; }

# limited SECONDS LOG COMMAND...: its output into LOG; 124 when it took longer than that, or than what is left.
limited() {
  local limit=$1 log=$2
  shift 2
  [ "$(left)" -ge "$limit" ] || limit=$(left)
  [ "$limit" -gt 0 ] || limit=1
  timeout --kill-after=5 "$limit" "$@" >"$log" 2>&1 </dev/null
}

# said RC LOG: what became of a command that failed.
said() {
  case $1 in
  124 | 137) printf 'not done in time' ;;
  *) printf 'exit code %d: %s' "$1" "$(words_of "$2")" ;;
  esac
}

# enough STEP NEEDS: true where that many seconds are left; else the step is skipped.
enough() {
  began=$(elapsed)
  [ "$(left)" -lt "$2" ] || return 0
  result "$1" skipped "$(left) of $seconds s left, it needs $2"
  return 1
}

# step NAME NEEDS FUNCTION
step() {
  began=$(elapsed)
  if [ "$steps" != all ] && [[ ",$steps," != *",$1,"* ]]; then
    result "$1" skipped "not asked for"
  elif enough "$1" "$2"; then
    "$3"
  fi
}

# number FILE KEY [OBJECT]: of a summary.json, a member a line, two blanks a level: of its top level or an object there.
number() {
  awk -v key="\"$2\":" -v object="${3:+\"$3\":}" '
    index($0, "  " object) == 1 && object != "" { inside = 1 }
    index($0, "  }") == 1 { inside = 0 }
    index($0, (object == "" ? "  " : "    ") key) == 1 && (object == "" || inside) { sub(/,$/, "", $2); print $2; exit }
  ' "$1"
}
