# The CUDA plug-in, hecate-cuda.so: the only file that links CUDA, cuBLAS and NCCL. Optional: without it the tools are the
# same and say why backend nccl is absent. Architectures: CMAKE_CUDA_ARCHITECTURES. NCCL is looked for in $NCCL_HOME, with
# the toolkit, and where Python wheels put it (nvidia/nccl; they hold libnccl.so.2 alone).
set(HEC_CUDA AUTO CACHE STRING "build the CUDA plug-in: AUTO (where CUDA 12 and NCCL are found), ON, OFF")
set_property(CACHE HEC_CUDA PROPERTY STRINGS AUTO ON OFF)
set(HEC_CUDA_WHY_NOT "")

# CUDA compilers stay unknown to CMake unless they are on the PATH; nothing is asked where there is none.
macro(hec_cuda_find_compiler)
  find_program(HEC_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
  mark_as_advanced(HEC_NVCC)
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX} AND HEC_NVCC)
    set(ENV{CUDACXX} ${HEC_NVCC})
  endif()
  set(HEC_CUDA_RELEASE 0)
  if(CMAKE_CUDA_COMPILER)
    set(HEC_CUDA_ASKED ${CMAKE_CUDA_COMPILER})
  else()
    set(HEC_CUDA_ASKED $ENV{CUDACXX})
    unset(CMAKE_CUDA_COMPILER CACHE) # not found the last time
  endif()
  separate_arguments(HEC_CUDA_ASKED UNIX_COMMAND "${HEC_CUDA_ASKED}") # CUDACXX may hold options
  if(HEC_CUDA_ASKED)
    execute_process(COMMAND ${HEC_CUDA_ASKED} --version OUTPUT_VARIABLE shown ERROR_QUIET)
    if(shown MATCHES "release ([0-9]+)")
      set(HEC_CUDA_RELEASE ${CMAKE_MATCH_1})
    endif()
  endif()
  if(NOT HEC_CUDA_ASKED)
    set(HEC_CUDA_WHY_NOT "no CUDA compiler (nvcc) was found when hecate was built")
  elseif(HEC_CUDA_RELEASE LESS 12)
    set(HEC_CUDA_WHY_NOT "no nvcc of CUDA 12 or later was found when hecate was built")
  else()
    include(CheckLanguage)
    check_language(CUDA)
    if(NOT CMAKE_CUDA_COMPILER)
      set(HEC_CUDA_WHY_NOT "nvcc did not work with the C++ compiler of the machine that built hecate")
    endif()
  endif()
endmacro()

macro(hec_cuda_find_libraries)
  find_package(CUDAToolkit QUIET)
  file(GLOB wheels /usr/lib/python3*/*-packages/nvidia/nccl /usr/local/lib/python3*/*-packages/nvidia/nccl
       $ENV{VIRTUAL_ENV}/lib/python3*/site-packages/nvidia/nccl $ENV{CONDA_PREFIX}/lib/python3*/site-packages/nvidia/nccl)
  find_path(HEC_NCCL_INCLUDE nccl.h HINTS ${NCCL_HOME} ENV NCCL_HOME ${CUDAToolkit_INCLUDE_DIRS} PATHS ${wheels}
            PATH_SUFFIXES include)
  # The library beside the header, not another version's: folder by folder, each with all names.
  get_filename_component(beside "${HEC_NCCL_INCLUDE}/.." REALPATH)
  find_library(HEC_NCCL_LIBRARY NAMES nccl libnccl.so.2 NAMES_PER_DIR HINTS ${NCCL_HOME} ENV NCCL_HOME ${beside}
               ${CUDAToolkit_LIBRARY_DIR} PATH_SUFFIXES lib lib64)
  mark_as_advanced(HEC_NCCL_INCLUDE HEC_NCCL_LIBRARY)
  if(NOT TARGET CUDA::cudart OR NOT TARGET CUDA::cublas OR NOT TARGET CUDA::cublasLt)
    set(HEC_CUDA_WHY_NOT "CUDA's runtime or cuBLAS was not found when hecate was built")
  elseif(NOT HEC_NCCL_INCLUDE OR NOT HEC_NCCL_LIBRARY)
    set(HEC_CUDA_WHY_NOT "NCCL was not found when hecate was built")
  endif()
endmacro()

if(NOT HEC_CUDA)
  set(HEC_CUDA_WHY_NOT "hecate was built without it (HEC_CUDA=OFF)")
elseif(HEC_SANITIZE OR HEC_COVERAGE)
  set(HEC_CUDA_WHY_NOT "this is an instrumented build of hecate")
else()
  hec_cuda_find_compiler()
endif()
if(NOT HEC_CUDA_WHY_NOT)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
    set(CMAKE_CUDA_ARCHITECTURES "80-real;90" CACHE STRING "GPUs to compile for: A100 and the like; H100 and all after it")
  endif()
  enable_language(CUDA)
  hec_cuda_find_libraries()
endif()

if(HEC_CUDA_WHY_NOT AND HEC_CUDA AND NOT HEC_CUDA STREQUAL "AUTO")
  message(FATAL_ERROR "HEC_CUDA=${HEC_CUDA}: ${HEC_CUDA_WHY_NOT}")
elseif(HEC_CUDA_WHY_NOT)
  message(STATUS "CUDA: ${HEC_CUDA_WHY_NOT}, no plug-in")
else()
  add_library(hec_nccl SHARED IMPORTED)
  set_target_properties(hec_nccl PROPERTIES IMPORTED_LOCATION ${HEC_NCCL_LIBRARY}
                        INTERFACE_INCLUDE_DIRECTORIES ${HEC_NCCL_INCLUDE}) # imported: its headers are not ours to warn about
  file(GLOB HEC_CUDA_SOURCES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/runtime/exec/cuda/*.c
       ${CMAKE_SOURCE_DIR}/runtime/exec/cuda/*.cu)
  add_library(hecate-cuda MODULE ${HEC_CUDA_SOURCES})
  # It looks for the libraries where they were found, installed too: a toolkit's or a wheel's need not be in the loader's
  # path, and CMake leaves out what it takes for a folder of the system.
  get_filename_component(HEC_NCCL_FOLDER ${HEC_NCCL_LIBRARY} DIRECTORY)
  set(HEC_CUDA_FOLDERS ${HEC_NCCL_FOLDER} ${CUDAToolkit_LIBRARY_DIR})
  list(REMOVE_DUPLICATES HEC_CUDA_FOLDERS)
  set_target_properties(hecate-cuda PROPERTIES PREFIX "" SUFFIX ".so" C_VISIBILITY_PRESET hidden
                        CUDA_VISIBILITY_PRESET hidden CUDA_STANDARD 17 CUDA_STANDARD_REQUIRED ON CUDA_EXTENSIONS OFF
                        CUDA_RUNTIME_LIBRARY Shared LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}
                        BUILD_RPATH "${HEC_CUDA_FOLDERS}" INSTALL_RPATH "${HEC_CUDA_FOLDERS}")
  # No contraction to FMA on the device either: element by element it then gives the bytes of the CPU.
  target_compile_options(hecate-cuda PRIVATE
    "$<$<COMPILE_LANGUAGE:CUDA>:--fmad=false;-Xcompiler=-Wall,-Wextra,-Wshadow,-Wconversion>"
    "$<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${HEC_WERROR}>>:-Werror=all-warnings;-Xcompiler=-Werror>")
  target_link_libraries(hecate-cuda PRIVATE CUDA::cudart CUDA::cublas CUDA::cublasLt hec_nccl)
  install(TARGETS hecate-cuda LIBRARY DESTINATION lib/hecate)
  list(APPEND HEC_PLUGINS hecate-cuda)
  message(STATUS "CUDA: plug-in for ${CMAKE_CUDA_ARCHITECTURES} (${CMAKE_CUDA_COMPILER}, ${HEC_NCCL_LIBRARY})")
endif()
set_source_files_properties(${CMAKE_SOURCE_DIR}/runtime/exec/backend_nccl.c PROPERTIES
                            COMPILE_DEFINITIONS "HEC_CUDA_WHY_NOT=\"${HEC_CUDA_WHY_NOT}\"")
