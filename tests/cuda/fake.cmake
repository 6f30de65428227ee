# The CUDA plug-in over the fake of CUDA, cuBLAS and NCCL in this folder (fake.h), in a folder of its own: HECATE_PLUGINS
# chooses it. For tests where there is no GPU, wherever the real plug-in is built; so not in instrumented builds (which
# would have to be told about the stacks of fake_grid_run.c besides).
if(NOT TARGET hecate-cuda)
  return()
endif()
enable_language(CXX)
file(GLOB HEC_FAKE_SOURCES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/cuda/fake_*.c
     ${CMAKE_SOURCE_DIR}/tests/support/work_queue.c)
file(GLOB FAKE_PLUGIN_SOURCES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/runtime/exec/cuda/*.c)
# Kernels are C++ there: a .cu has one language in a folder, so each is included by a file of its own.
file(GLOB HEC_CUDA_KERNELS CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/runtime/exec/cuda/*.cu)
foreach(kernels ${HEC_CUDA_KERNELS})
  get_filename_component(name ${kernels} NAME_WE)
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/fake/${name}.cpp CONTENT "#include \"runtime/exec/cuda/${name}.cu\"\n")
  list(APPEND FAKE_PLUGIN_SOURCES ${CMAKE_BINARY_DIR}/fake/${name}.cpp)
endforeach()
# Places that are not aligned to their type stop a kernel (SIGILL), as they do on a device.
set(FAKE_CXX_FLAGS -include ${CMAKE_SOURCE_DIR}/tests/cuda/cuda_emulation.h -fno-fast-math -ffp-contract=off -Wall
                   -Wextra -Wconversion -Wshadow -fsanitize=alignment -fsanitize-undefined-trap-on-error)
if(HEC_WERROR)
  list(APPEND FAKE_CXX_FLAGS -Werror)
endif()

function(hec_fake_cuda target)
  target_include_directories(${target} SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS} ${HEC_NCCL_INCLUDE})
  target_link_libraries(${target} PRIVATE Threads::Threads m)
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${FAKE_CXX_FLAGS}>")
  set_target_properties(${target} PROPERTIES CXX_STANDARD 17 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF
                        CXX_VISIBILITY_PRESET hidden)
endfunction()

add_library(hecate-cuda-fake MODULE ${FAKE_PLUGIN_SOURCES} ${HEC_FAKE_SOURCES})
hec_fake_cuda(hecate-cuda-fake)
set_target_properties(hecate-cuda-fake PROPERTIES PREFIX "" OUTPUT_NAME hecate-cuda SUFFIX ".so"
                      LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fake)
target_link_options(hecate-cuda-fake PRIVATE LINKER:--no-undefined)

# The fake itself.
set(FAKE_TESTS fake fake_blas fake_nccl)
foreach(name ${FAKE_TESTS})
  add_executable(test.cuda.${name} ${CMAKE_SOURCE_DIR}/tests/cuda/test_${name}.c
                 ${CMAKE_SOURCE_DIR}/tests/cuda/child.c ${CMAKE_SOURCE_DIR}/tests/cuda/kernels_of_tests.cpp
                 ${HEC_FAKE_SOURCES})
  target_link_libraries(test.cuda.${name} PRIVATE hec_test_support)
  hec_fake_cuda(test.cuda.${name})
  add_test(NAME cuda.${name} COMMAND test.cuda.${name} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(cuda.${name} PROPERTIES TIMEOUT 300)
endforeach()

# The plug-in's own test over it, in one order of the devices; cuda.policies and cuda.run have many.
if(EXISTS ${CMAKE_SOURCE_DIR}/tests/exec/test_processor_cuda.c)
  add_test(NAME cuda.processor_fake COMMAND test.exec processor_cuda WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(cuda.processor_fake PROPERTIES TIMEOUT 600 ENVIRONMENT
                       "HECATE_PLUGINS=${CMAKE_BINARY_DIR}/fake;FAKE_CUDA_SEED=1")
endif()
