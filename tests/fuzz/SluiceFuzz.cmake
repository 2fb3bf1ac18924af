# SPDX-License-Identifier: Apache-2.0
# sl_fuzz(name SOURCES a.c ... LIBS sl_mqtt ... [CORPUS folder ...]): a fuzz entry, one line for the author.
# The sources define LLVMFuzzerTestOneInput. With clang it is linked with libFuzzer, else with the driver
# standalone.c; ctest (label fuzz) replays the corpus and then mutates for SLUICE_FUZZ_SECONDS (10).
# Without CORPUS the seeds are in corpus/<name>.
if(CMAKE_C_COMPILER_ID MATCHES "Clang" AND SL_SANITIZE)
  set(SL_LIBFUZZER ON)
else()
  set(SL_LIBFUZZER OFF)
endif()

function(sl_fuzz NAME)
  cmake_parse_arguments(F "" "" "SOURCES;LIBS;CORPUS" ${ARGN})
  if(NOT F_CORPUS)
    set(F_CORPUS ${CMAKE_CURRENT_SOURCE_DIR}/corpus/${NAME})
  endif()
  set(found ${CMAKE_BINARY_DIR}/tests/fuzz-found/${NAME})
  file(MAKE_DIRECTORY ${found})
  add_executable(${NAME} ${F_SOURCES})
  set_target_properties(${NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_include_directories(${NAME} PRIVATE ${PROJECT_SOURCE_DIR}/tests/fuzz)
  target_link_libraries(${NAME} PRIVATE ${F_LIBS})
  if(SL_LIBFUZZER)
    target_compile_options(${NAME} PRIVATE -fsanitize=fuzzer-no-link)
    target_link_options(${NAME} PRIVATE -fsanitize=fuzzer)
    add_test(NAME ${NAME} COMMAND sh -c
      "exec \"$0\" -max_total_time=\${SLUICE_FUZZ_SECONDS:-10} -timeout=10 -print_final_stats=1 \"$@\""
      $<TARGET_FILE:${NAME}> -artifact_prefix=${found}/crash- ${found} ${F_CORPUS})
  else()
    target_sources(${NAME} PRIVATE ${PROJECT_SOURCE_DIR}/tests/fuzz/standalone.c)
    add_test(NAME ${NAME} COMMAND ${NAME} ${found} ${F_CORPUS})
  endif()
  set_tests_properties(${NAME} PROPERTIES LABELS fuzz TIMEOUT 900
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
endfunction()
