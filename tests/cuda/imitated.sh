# Sourced by tests that drive a tool on imitated devices (fake.h): tests/support/tool.sh, with the plug-in over the fake of
# CUDA in force. They are skipped where it is not built.
source "$(dirname "$0")/../support/tool.sh"
if [ ! -e "$build/fake/hecate-cuda.so" ]; then
  name=$(basename "$0" .sh)
  echo "SKIPPED cuda.${name#test_}: the plug-in over the fake of CUDA is not built"
  exit 77
fi
export HECATE_PLUGINS=$build/fake
