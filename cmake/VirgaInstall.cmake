# `cmake --install` puts headers, libraries and the command where find_package(Virga) finds them. What needs libtorch is
# an export of its own, so that whoever wants the core alone needs no libtorch.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/Virga)
get_property(CORE GLOBAL PROPERTY VIRGA_MODULES)
list(REMOVE_ITEM CORE virga_torch)

install(TARGETS ${CORE} EXPORT VirgaTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT VirgaTargets NAMESPACE Virga:: DESTINATION ${PACKAGE_DIR})
if(TARGET virga_torch)
  install(TARGETS virga_torch EXPORT VirgaTorchTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT VirgaTorchTargets NAMESPACE Virga:: DESTINATION ${PACKAGE_DIR})
endif()

install(TARGETS virga RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY virga DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" PATTERN "collectives.def")

configure_package_config_file(cmake/VirgaConfig.cmake.in ${CMAKE_BINARY_DIR}/VirgaConfig.cmake
                              INSTALL_DESTINATION ${PACKAGE_DIR})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/VirgaConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/VirgaConfig.cmake ${CMAKE_BINARY_DIR}/VirgaConfigVersion.cmake
        DESTINATION ${PACKAGE_DIR})

# The package as a stranger meets it: installed below the build folder, found and linked by a program of its own.
if(VIRGA_WITH_TESTS)
  add_test(NAME consumer
           COMMAND ${CMAKE_COMMAND} -D BUILD_DIR=${CMAKE_BINARY_DIR} -D WORK_DIR=${CMAKE_BINARY_DIR}/consumer
                   -D CXX=${CMAKE_CXX_COMPILER} -D FLAGS=${CMAKE_CXX_FLAGS} -D TYPE=${CMAKE_BUILD_TYPE}
                   -P ${CMAKE_SOURCE_DIR}/tests/consumer/consumer.cmake)
  set_tests_properties(consumer PROPERTIES LABELS consumer TIMEOUT 180)
endif()
