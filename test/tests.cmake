# SPDX-License-Identifier: Apache-2.0
# One executable a test file; a unit test links its folder's library and those left of it, no more.

function(conclave_test name source library label timeout)
  add_executable(${name} ${source})
  target_link_libraries(${name} PRIVATE ${library} PkgConfig::CMOCKA)
  target_compile_definitions(${name} PRIVATE CONCLAVE_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
    CONCLAVE_BIN_DIR="${CONCLAVE_BIN}")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/test)
  add_test(NAME ${label}/${name} COMMAND ${name})
  set_tests_properties(${label}/${name} PROPERTIES LABELS ${label} TIMEOUT ${timeout})
endfunction()

# What more than one test needs (fakes, the in-process cluster).
file(GLOB FAKES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/test/fake/*.c)
if(FAKES)
  add_library(conclave_fake STATIC ${FAKES})
  target_link_libraries(conclave_fake PUBLIC conclave_roles)
endif()

foreach(folder reactor cfg proc rpc roles)
  set(library conclave_${folder})
  if(folder STREQUAL "roles" AND TARGET conclave_fake)
    set(library conclave_fake) # roles tests meet the fakes of their peers
  endif()
  file(GLOB tests CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/test/unit/${folder}/test_*.c)
  foreach(source ${tests})
    get_filename_component(name ${source} NAME_WE)
    conclave_test(${name} ${source} ${library} unit 60)
  endforeach()
endforeach()

foreach(ring contract cluster)
  file(GLOB tests CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/test/${ring}/test_*.c)
  foreach(source ${tests})
    get_filename_component(name ${source} NAME_WE)
    conclave_test(${name} ${source} conclave_fake ${ring} 300)
  endforeach()
endforeach()

# Lints: cheap, first.
foreach(lint layers format rows)
  add_test(NAME lint/${lint} COMMAND ${CMAKE_SOURCE_DIR}/test/lint/${lint})
  set_tests_properties(lint/${lint} PROPERTIES LABELS lint TIMEOUT 60)
endforeach()
add_test(NAME lint/globals COMMAND ${CMAKE_SOURCE_DIR}/test/lint/globals ${CMAKE_BINARY_DIR})
set_tests_properties(lint/globals PROPERTIES LABELS lint TIMEOUT 60)

# Process tests: the real programs, by shell scripts that speak TAP; each owns its directory and ports. NNNN-name-serial.t
# runs with no other test beside it. Browser tests are such scripts too.
if(TARGET judicator)
  add_executable(hold ${CMAKE_SOURCE_DIR}/test/process/hold.c)
  target_link_libraries(hold PRIVATE conclave_proc)
  set_target_properties(hold PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/test)
  add_library(clock_shim MODULE ${CMAKE_SOURCE_DIR}/test/process/clock_shim.c)
  target_compile_options(clock_shim PRIVATE -fno-sanitize=all)
  set_target_properties(clock_shim PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/test)
  find_program(BASH bash REQUIRED)
  foreach(ring process browser)
    file(GLOB tests CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/test/${ring}/*.t)
    foreach(script ${tests})
      get_filename_component(name ${script} NAME_WE)
      add_test(NAME ${ring}/${name} COMMAND ${BASH} ${script})
      set_tests_properties(${ring}/${name} PROPERTIES LABELS ${ring} TIMEOUT 300
        ENVIRONMENT "CONCLAVE_TEST_BIN=${CONCLAVE_BIN};CONCLAVE_TEST_TOOLS=${CMAKE_BINARY_DIR}/test")
      if(ring STREQUAL "browser")
        set_tests_properties(${ring}/${name} PROPERTIES TIMEOUT 1200)
      endif()
      if(name MATCHES "-serial$") # it measures time, or needs the whole machine
        set_tests_properties(${ring}/${name} PROPERTIES RUN_SERIAL ON TIMEOUT 600)
      endif()
    endforeach()
  endforeach()
endif()

# Fuzz targets. With CONCLAVE_FUZZ (clang) they are libFuzzer programs, which test/fuzz/run runs.
# Everywhere else they replay their corpus as a test.
if(CONCLAVE_FUZZ)
  target_compile_options(conclave_sanitize INTERFACE -fsanitize=fuzzer-no-link)
endif()
file(GLOB FUZZERS CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/test/fuzz/fuzz_*.c)
foreach(source ${FUZZERS})
  get_filename_component(name ${source} NAME_WE)
  string(REPLACE fuzz_ "" target ${name})
  if(CONCLAVE_FUZZ)
    add_executable(${name} ${source})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  else()
    add_executable(${name} ${source} ${CMAKE_SOURCE_DIR}/test/fuzz/replay.c)
    add_test(NAME fuzz/${name} COMMAND ${name} ${CMAKE_SOURCE_DIR}/test/fuzz/corpus/${target})
    set_tests_properties(fuzz/${name} PROPERTIES LABELS fuzz TIMEOUT 60)
  endif()
  target_link_libraries(${name} PRIVATE conclave_roles)
  target_compile_definitions(${name} PRIVATE CONCLAVE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/test)
endforeach()
