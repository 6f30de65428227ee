# The MPI plug-ins, one per MPI whose compiler wrapper is there: hecate-mpi-openmpi.so, hecate-mpi-mpich.so (MPICH and
# those with its binary interface). Optional: without any the tools are the same and say why the backend is absent.
# The wrappers are asked for their flags; find_package(MPI) knows one MPI at a time only.
option(HEC_MPI "build the MPI plug-ins where an MPI is found" ON)
set(HEC_PLUGINS "")
set(HEC_MPI_NAMES "")

# hec_mpi_plugin(wrapper): one plug-in, unless its MPI cannot be used or has one already.
function(hec_mpi_plugin wrapper)
  execute_process(COMMAND ${wrapper} -showme:version OUTPUT_VARIABLE version ERROR_VARIABLE version RESULT_VARIABLE failed)
  set(name mpich)
  if(NOT failed AND version MATCHES "Open MPI")
    set(name openmpi)
  endif()
  if(name IN_LIST HEC_MPI_NAMES)
    return()
  endif()
  # "gcc -I... -L... -l..."; both families know -show.
  execute_process(COMMAND ${wrapper} -show OUTPUT_VARIABLE shown ERROR_QUIET RESULT_VARIABLE failed
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  separate_arguments(words UNIX_COMMAND "${shown}")
  set(compile ${words})
  list(FILTER compile INCLUDE REGEX "^-(I|D|pthread)")
  list(TRANSFORM compile REPLACE "^-I" "-isystem") # its headers are not ours to warn about
  set(link ${words})
  list(FILTER link INCLUDE REGEX "^-(L|l|Wl,|pthread)")
  string(MAKE_C_IDENTIFIER "HEC_WORKS_${wrapper}" works)
  if(NOT DEFINED ${works})
    file(WRITE ${CMAKE_BINARY_DIR}/try/${name}.c "#include <mpi.h>\nint main(void) { return MPI_Init(0, 0); }\n")
    try_compile(${works} ${CMAKE_BINARY_DIR}/try ${CMAKE_BINARY_DIR}/try/${name}.c
                COMPILE_DEFINITIONS ${compile} LINK_LIBRARIES ${link})
  endif()
  if(failed OR NOT ${works})
    message(STATUS "MPI: ${wrapper} cannot build a program, no plug-in for it")
    return()
  endif()
  add_library(hecate-mpi-${name} MODULE ${CMAKE_SOURCE_DIR}/runtime/exec/mpi/plugin_mpi.c)
  set_target_properties(hecate-mpi-${name} PROPERTIES PREFIX "" SUFFIX ".so" C_VISIBILITY_PRESET hidden
                        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
  target_compile_options(hecate-mpi-${name} PRIVATE ${compile})
  target_link_libraries(hecate-mpi-${name} PRIVATE ${link})
  install(TARGETS hecate-mpi-${name} LIBRARY DESTINATION lib/hecate)
  message(STATUS "MPI: plug-in for ${name} (${wrapper})")
  set(HEC_MPI_NAMES ${HEC_MPI_NAMES} ${name} PARENT_SCOPE)
  set(HEC_PLUGINS ${HEC_PLUGINS} hecate-mpi-${name} PARENT_SCOPE)
endfunction()

if(HEC_MPI)
  # Not kept in the cache: an MPI installed later is found by the next configure, one removed is forgotten.
  foreach(command mpicc.openmpi mpicc.mpich mpicc)
    unset(HEC_MPICC CACHE)
    find_program(HEC_MPICC ${command})
    if(HEC_MPICC)
      hec_mpi_plugin(${HEC_MPICC})
    endif()
    unset(HEC_MPICC CACHE)
  endforeach()
  if(NOT HEC_MPI_NAMES)
    message(STATUS "MPI: no compiler (mpicc) found, no plug-in")
  endif()
endif()
string(JOIN " " HEC_MPI_BUILT ${HEC_MPI_NAMES})
set_source_files_properties(${CMAKE_SOURCE_DIR}/runtime/exec/backend_mpi.c PROPERTIES
                            COMPILE_DEFINITIONS "HEC_MPI_BUILT=\"${HEC_MPI_BUILT}\"")
