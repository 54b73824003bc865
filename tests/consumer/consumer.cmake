# Installs what BUILD_DIR has built below WORK_DIR, builds the consumer with that alone and runs it.
#   cmake -D BUILD_DIR=... -D WORK_DIR=... -D CXX=... -D FLAGS=... -D TYPE=... -P consumer.cmake

function(run)
  execute_process(COMMAND ${ARGN} OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    string(JOIN " " command ${ARGN})
    message(FATAL_ERROR "${command}\nended with ${status}:\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

set(prefix ${WORK_DIR}/installed)
file(REMOVE_RECURSE ${WORK_DIR})
run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${prefix})
run(${CMAKE_COMMAND} -G Ninja -S ${CMAKE_CURRENT_LIST_DIR} -B ${WORK_DIR}/build -D CMAKE_BUILD_TYPE=${TYPE}
    -D CMAKE_CXX_COMPILER=${CXX} "-DCMAKE_CXX_FLAGS=${FLAGS}" -D CMAKE_PREFIX_PATH=${prefix})
run(${CMAKE_COMMAND} --build ${WORK_DIR}/build)
run(${WORK_DIR}/build/consumer)
message("${output}")
foreach(rank 0 1)
  if(NOT output MATCHES "rank ${rank}: mean 1.5 after")
    message(FATAL_ERROR "rank ${rank} did not get the mean")
  endif()
endforeach()
file(REMOVE_RECURSE ${WORK_DIR})
