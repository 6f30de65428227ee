#!/usr/bin/env bash
# Backend nccl as a user meets it, with and without its plug-in: every reason why it cannot be used is said in one line.
# With devices it runs and --check passes. Plug-ins that cannot be had on this machine (another version, a library
# missing, two devices) are stand-ins on the contract, cuda/plugin.h. What runs is the plug-in over an imitation
# (tests/cuda/fake.h), where it is built. None of this needs a GPU.
. "$(dirname "$0")/../support/tool.sh"
tool=("$build/hecate-run")
unset HECATE_PLUGINS

# says PART: `--backend list` has one line of nccl, with PART; asking for it is refused with that very reason.
says() {
  "${tool[@]}" --backend list >out.txt 2>err.txt || fail "--backend list: exit $?"
  [ "$(grep -cE '^  nccl .*\[not available: .+\]$' out.txt)" -eq 1 ] || fail "no line of nccl: $(cat out.txt)"
  [ ! -s err.txt ] || fail "--backend list: on stderr: $(cat err.txt)"
  has "$1"
  local reason
  reason=$(sed -n 's/^  nccl .*\[not available: \(.*\)\]$/\1/p' out.txt)
  refuses 2 "--backend nccl: $reason" "$sample" --backend nccl
}

# offers PART: `--backend list` says that it is available, with PART.
offers() {
  "${tool[@]}" --backend list >out.txt 2>err.txt || fail "--backend list: exit $?"
  [ "$(grep -cE '^  nccl .*\[available: .+\]$' out.txt)" -eq 1 ] || fail "no line of nccl: $(cat out.txt)"
  [ ! -s err.txt ] || fail "--backend list: on stderr: $(cat err.txt)"
  has "[available: $1"
}

# What this build has.
said=$("${tool[@]}" --backend list | grep '^  nccl ')
if [ -e "$build/hecate-cuda.so" ]; then
  case $said in *"not built"* | *" is not in "*) fail "it is built: $said" ;; esac
  [ "$(nm -D --defined-only "$build/hecate-cuda.so" | awk '{print $3}')" = hecate_cuda_plugin ] ||
    fail "the plug-in shows more than one symbol: $(nm -D --defined-only "$build/hecate-cuda.so")"
  mkdir empty # hides nothing
  [ "$(HECATE_PLUGINS=$work/empty "${tool[@]}" --backend list | grep '^  nccl ')" = "$said" ] || fail "an empty folder hides it"
  "$build/hecate-validate" compare --backend list | grep -qF -- "$said" || fail "hecate-validate says something else"
else
  case $said in *"not available: not built: "?*) ;; *) fail "it is not built: $said" ;; esac
fi

# A program that has no plug-in beside it.
mkdir -p alone/bin other
cp "$build/hecate-run" alone/bin/
tool=("$work/alone/bin/hecate-run")
if [ -e "$build/hecate-cuda.so" ]; then
  says "hecate-cuda.so is not in $work/alone/bin nor in ../lib/hecate"
  HECATE_PLUGINS=$work/other says "hecate-cuda.so is not in $work/other, not in $work/alone/bin nor in ../lib/hecate"
else
  says "not built: "
fi

echo "not a library" >other/hecate-cuda.so
HECATE_PLUGINS=$work/other says "$work/other/hecate-cuda.so: "

compiler=$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
if ! command -v "$compiler" >/dev/null; then
  echo "SKIPPED exec.cuda_plugin (stand-ins): no C compiler"
  [ "$failures" -eq 0 ]
  exit
fi
cat >stand_in.c <<'END'
#include "runtime/exec/cuda/plugin.h"
#include <string.h>
#ifdef ABSENT
extern int absent(void);
int (*needed)(void) = absent;
#endif
static const char *const names[] = {"NVIDIA H200", "NVIDIA H200 NVL", "three", "four", "five"};
static bool probe(hec_cuda_probe *p) {
  memset(p, 0, sizeof *p);
  p->n_devices = DEVICES;
  for (int i = 0; i < DEVICES; i++)
    strcpy(p->devices[i].name, names[i]), p->devices[i].fits = true;
  strcpy(p->why, DEVICES > 0 ? "" : "no CUDA driver");
  return DEVICES > 0;
}
static const char *open_it(const hec_cuda_options *options, hec_processor **on) {
  (void)options, (void)on;
  return "it is somebody else's";
}
static const hec_cuda_device device = {.open = open_it};
static const hec_cuda_plugin plugin = {.layout = HEC_CUDA_LAYOUT + NEWER, .probe = probe, .device = &device};
const hec_cuda_plugin *hecate_cuda_plugin(void) { return &plugin; }
END

# stand_in FLAGS...: as other/hecate-cuda.so.
stand_in() {
  "$compiler" -shared -fPIC -I "$source_dir" -DNEWER=0 -DDEVICES=0 "$@" -o other/hecate-cuda.so stand_in.c ||
    fail "the stand-in does not build: $*"
}
export HECATE_PLUGINS=$work/other
stand_in
says "no CUDA driver"
stand_in -UDEVICES -DDEVICES=1
offers "1 device found (NVIDIA H200)]"
stand_in -UDEVICES -DDEVICES=2
offers "2 devices found (NVIDIA H200, NVIDIA H200 NVL)]"
refuses 2 "--transport: expected one of local, nccl, found \"shm\"" "$sample" --backend nccl --transport shm
refuses 2 "--transport nccl: expected at most one rank to a device, found 3 ranks and 2 devices" \
  "$sample" --backend nccl --transport nccl --ranks 3
refuses 2 "--virtual: expected transport local, found nccl" "$sample" --backend nccl --transport nccl --virtual --ranks 2
stand_in -UDEVICES -DDEVICES=5
offers "5 devices found (NVIDIA H200, NVIDIA H200 NVL, three, four, ...)]"
stand_in -UDEVICES -DDEVICES=2
refuses 1 "rank 0, in opening the device: device 0: it is somebody else's" "$sample" --backend nccl --ranks 1
stand_in -UNEWER -DNEWER=1
says "$work/other/hecate-cuda.so belongs to another version of hecate"
stand_in -DABSENT
says "undefined symbol: absent"
stand_in -Dhecate_cuda_plugin=something_else
says "$work/other/hecate-cuda.so belongs to another version of hecate"

# One that cannot be used does not hide one further on.
mkdir -p alone/lib/hecate
stand_in -UDEVICES -DDEVICES=1
mv other/hecate-cuda.so alone/lib/hecate/
echo "not a library" >other/hecate-cuda.so
offers "1 device found"
# ... but is named where that one is of no use either.
stand_in
cp other/hecate-cuda.so whole.so
mv other/hecate-cuda.so alone/lib/hecate/
for bytes in 0 100 10000; do # an interrupted copy
  head -c "$bytes" whole.so >other/hecate-cuda.so
  says "no CUDA driver (passed over: $work/other/hecate-cuda.so"
done
has "hecate-cuda.so is cut short)" err.txt

# On devices that are an imitation.
if [ ! -e "$build/fake/hecate-cuda.so" ]; then
  echo "SKIPPED exec.cuda_plugin (runs): the plug-in over the imitation is not built"
  [ "$failures" -eq 0 ]
  exit
fi
export HECATE_PLUGINS=$build/fake FAKE_CUDA_DEVICES=2
tool=("$build/hecate-run")
small=(--steps 2 --layers 1 --tokens 32 --policy ep,hecate --warmup 0 --check)

# runs NAME DEVICES OPTION...: passes its checks; the summary names what carried the messages.
runs() {
  FAKE_CUDA_DEVICES=$2 "${tool[@]}" "$sample" --backend nccl "${small[@]}" --json "${@:3}" >out.txt 2>err.txt ||
    fail "exit code $?: $*: $(head -c 300 err.txt)"
  has "\"transport\": \"$1\""
  has '"ranks_are": "threads"'
}
runs nccl 2 --ranks 2
runs local 1 --ranks 2
runs local 2 --ranks 3
runs local 2 --ranks 2 --transport local
runs nccl 4 --ranks 4 --transport nccl
"${tool[@]}" --list >out.txt || fail "--list"
has "transports of backend nccl"
refuses 2 "training on devices is not there yet" train --text "$source_dir/README.md" --backend nccl --ranks 2
FAKE_CUDA_FAIL=cudaMalloc:2 refuses 1 "in opening the device: device" "$sample" --backend nccl --ranks 2
tool=("$build/hecate-bench")
refuses 2 "--backend: expected cpu or mpi, found nccl" collectives --backend nccl
[ "$failures" -eq 0 ]
