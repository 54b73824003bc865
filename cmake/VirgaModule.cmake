# How every target of the house is made: one static library a module, one test program a module.
#
#   virga_module(NAME DEPS a b ...)   all *.cc of the current folder (and sub-folders) become virga_NAME,
#                                     exported as Virga::NAME; DEPS are the modules and libraries it stands on
#   virga_test(NAME DEPS a b ...)     all *_test.cc of the current folder become the program test_NAME; SERIAL: no other
#                                     test runs beside it, for those that hold something to the clock

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

# -ffp-contract=off: the order of summation is part of every algorithm, so no path may fuse what another
# path rounds twice.
add_library(virga_flags INTERFACE)
target_compile_options(virga_flags INTERFACE -Wall -Wextra -Werror -ffp-contract=off)
target_include_directories(virga_flags INTERFACE
                           $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}> $<BUILD_INTERFACE:${CMAKE_BINARY_DIR}>
                           $<INSTALL_INTERFACE:include>)
add_library(Virga::flags ALIAS virga_flags)

function(virga_module NAME)
  cmake_parse_arguments(ARG "" "" "DEPS" ${ARGN})
  file(GLOB_RECURSE SOURCES CONFIGURE_DEPENDS *.cc)
  file(GLOB_RECURSE HEADERS CONFIGURE_DEPENDS *.h)
  if(SOURCES)
    add_library(virga_${NAME} STATIC ${SOURCES} ${HEADERS})
    target_link_libraries(virga_${NAME} PUBLIC ${ARG_DEPS} PRIVATE $<BUILD_INTERFACE:virga_flags>)
    set(SCOPE PUBLIC)
  else()
    add_library(virga_${NAME} INTERFACE)
    target_link_libraries(virga_${NAME} INTERFACE ${ARG_DEPS})
    set(SCOPE INTERFACE)
  endif()
  target_include_directories(virga_${NAME} ${SCOPE}
                             $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}> $<BUILD_INTERFACE:${CMAKE_BINARY_DIR}>
                             $<INSTALL_INTERFACE:include>)
  target_compile_features(virga_${NAME} ${SCOPE} cxx_std_20)
  set_target_properties(virga_${NAME} PROPERTIES EXPORT_NAME ${NAME})
  add_library(Virga::${NAME} ALIAS virga_${NAME})
  set_property(GLOBAL APPEND PROPERTY VIRGA_MODULES virga_${NAME})
endfunction()

function(virga_test NAME)
  cmake_parse_arguments(ARG "SERIAL" "TIMEOUT" "DEPS;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  file(GLOB SOURCES CONFIGURE_DEPENDS *_test.cc)
  if(NOT SOURCES)
    return()
  endif()
  add_executable(test_${NAME} ${SOURCES})
  target_link_libraries(test_${NAME} PRIVATE virga_flags ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  gtest_discover_tests(test_${NAME} TEST_PREFIX ${NAME}. DISCOVERY_TIMEOUT 60
                       PROPERTIES TIMEOUT ${ARG_TIMEOUT} RUN_SERIAL ${ARG_SERIAL} LABELS "${NAME};${ARG_LABELS}")
endfunction()
