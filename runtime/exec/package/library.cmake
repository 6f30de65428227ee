# libhecate: the shared library, its header, and what others' builds find it by (pkg-config, find_package(hecate)).
# Everything is compiled hidden, the functions of hecate.h (HEC_API) excepted, so the library exports those alone; the
# tools link the same static libraries. Its file name carries major.minor: before 1.0 a minor version may change them.
# hec_simulate is hecate-sim without the program: it comes from the floor of the tools.
file(GLOB HEC_LIBRARY_SOURCES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/runtime/exec/package/hecate_*.c
     ${CMAKE_SOURCE_DIR}/tools/package/hecate_*.c)
add_library(libhecate SHARED ${HEC_LIBRARY_SOURCES})
add_library(hecate::hecate ALIAS libhecate)
set_target_properties(libhecate PROPERTIES OUTPUT_NAME hecate EXPORT_NAME hecate VERSION ${PROJECT_VERSION}
                      SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
target_link_libraries(libhecate PRIVATE hec_tools hec_exec)
target_link_options(libhecate PRIVATE -Wl,--as-needed)
# No GSL in it. GSL has the GPL, and what users link, or install as a wheel, shall be under Apache-2.0 as the rest. No function
# of hecate.h reaches GSL: synthetic traces, the fits of hecate-validate and the products of hecate-run do, and those are
# programs. So sections that nothing reaches are dropped, GSL is not linked, and a function that comes to need it is an
# undefined symbol here: an error of the build. Instrumented libraries keep everything, and are not given to users.
if(NOT HEC_SANITIZE AND NOT HEC_COVERAGE)
  set_target_properties(libhecate PROPERTIES HEC_NO_GSL ON)
  target_link_options(libhecate PRIVATE -Wl,--gc-sections -Wl,-z,defs)
endif()
target_include_directories(libhecate INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)

install(TARGETS libhecate EXPORT hecate LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${CMAKE_SOURCE_DIR}/runtime/exec/package/hecate.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/hecate)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/tools/example DESTINATION ${CMAKE_INSTALL_DOCDIR}/tools)

# pkg-config: the prefix is found from where the file lies.
file(RELATIVE_PATH HEC_PREFIX_FROM_PC ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(${CMAKE_SOURCE_DIR}/runtime/exec/package/hecate.pc.in ${CMAKE_BINARY_DIR}/hecate.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/hecate.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

include(CMakePackageConfigHelpers)
set(HEC_PACKAGE_FOLDER ${CMAKE_INSTALL_LIBDIR}/cmake/hecate)
install(EXPORT hecate NAMESPACE hecate:: FILE hecateConfig.cmake DESTINATION ${HEC_PACKAGE_FOLDER})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/hecateConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/hecateConfigVersion.cmake DESTINATION ${HEC_PACKAGE_FOLDER})
