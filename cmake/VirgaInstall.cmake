# `cmake --install` puts headers, libraries and the command where find_package(Virga) finds them.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_property(MODULES GLOBAL PROPERTY VIRGA_MODULES)
install(TARGETS ${MODULES} EXPORT VirgaTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS virga RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY virga DESTINATION include FILES_MATCHING PATTERN "*.h")
install(EXPORT VirgaTargets NAMESPACE Virga:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Virga)
configure_package_config_file(cmake/VirgaConfig.cmake.in ${CMAKE_BINARY_DIR}/VirgaConfig.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Virga)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/VirgaConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/VirgaConfig.cmake ${CMAKE_BINARY_DIR}/VirgaConfigVersion.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Virga)
