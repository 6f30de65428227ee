# CBC (Debian: coinor-libcbc-dev), optional: hec_cbc is the solver that the tools hand to planners, or the answer that
# there is none. Tools and tests link it; hec_plan, hec_exec and libhecate do not: planning stays free of C++ and of a
# library that many machines lack, and whoever embeds hecate decides.
# Off unless asked for: Debian's CBC brings an OpenBLAS into the process at its start, before hecate-run has chosen core type
# and threads for its own (runtime/exec/cpu_math.c), which then is that one.
option(HEC_CBC "exact integer programmes by CBC where it is found" OFF)
set(HEC_CBC_SOURCE none.c)
if(HEC_CBC)
  # Not kept in the cache: installed or removed later, the next configure notices.
  foreach(part HEADER LIBRARY SOLVER)
    unset(HEC_CBC_${part} CACHE)
  endforeach()
  find_path(HEC_CBC_HEADER coin/Cbc_C_Interface.h NO_CACHE)
  find_library(HEC_CBC_LIBRARY Cbc NO_CACHE)
  find_library(HEC_CBC_SOLVER CbcSolver NO_CACHE)
  if(HEC_CBC_HEADER AND HEC_CBC_LIBRARY AND HEC_CBC_SOLVER)
    set(HEC_CBC_SOURCE cbc.c)
    message(STATUS "CBC: ${HEC_CBC_SOLVER}")
  else()
    message(STATUS "CBC: not found, planners keep their heuristics")
  endif()
endif()
add_library(hec_cbc STATIC ${CMAKE_SOURCE_DIR}/runtime/plan/cbc/${HEC_CBC_SOURCE})
target_link_libraries(hec_cbc PUBLIC hec_plan)
if(HEC_CBC_SOURCE STREQUAL "cbc.c")
  target_include_directories(hec_cbc SYSTEM PRIVATE ${HEC_CBC_HEADER})
  target_link_libraries(hec_cbc PUBLIC ${HEC_CBC_SOLVER} ${HEC_CBC_LIBRARY})
endif()
