# Sourced after tool.sh by tests that start ranks under the mpirun of Open MPI and of MPICH.
#
#   has_mpi KIND [FOLDER]   openmpi or mpich can start ranks, with hecate's plug-in in FOLDER (the build): sets $launcher; else
#                           says what is missing
#
# Everything stays on this machine; memory that Open MPI keeps at its end is not ours to report.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ASAN_OPTIONS=detect_leaks=0
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_btl=self,vader OMPI_MCA_oob_tcp_if_include=lo
export OMPI_MCA_plm_rsh_agent=/bin/false
unset HECATE_PLUGINS HECATE_MPI_UNIT

has_mpi() {
  launcher=mpirun.$1
  command -v "$launcher" >/dev/null && [ -e "${2:-$build}/hecate-mpi-$1.so" ] && return
  local name=${0##*/test_}
  echo "SKIPPED exec.${name%.sh} ($1): $launcher is not installed, or no plug-in for it was built"
  return 1
}
