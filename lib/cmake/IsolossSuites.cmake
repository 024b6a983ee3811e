# CTest includes this. A suite of cases is one test: to start a process takes longer than most cases do.

cmake_policy(VERSION 3.25)

# Behind its figures GoogleTest lists what was skipped, then what failed.
set(isoloss_all_skipped "\\[  PASSED  \\] 0 tests\\.\n(\\[  SKIPPED \\][^\n]*\n)+$")

# isoloss_add_suite(<name> <program> <cases> <timeout> <labels>): of these cases `Suite.case`, if any.
function(isoloss_add_suite name program cases timeout labels)
  if(NOT cases)
    return()
  endif()
  set(cost 0)
  if("long" IN_LIST labels)
    set(cost 10)
  endif()
  list(JOIN cases ":" filter)
  get_filename_component(folder ${program} DIRECTORY)
  add_test("${name}" ${program} "--gtest_filter=${filter}")
  set_tests_properties("${name}" PROPERTIES LABELS "${labels}" COST ${cost} TIMEOUT ${timeout}
    WORKING_DIRECTORY ${folder} SKIP_REGULAR_EXPRESSION "${isoloss_all_skipped}")
endfunction()

# isoloss_add_suites(<name> <program> <long> <timeout> <labels>): those of a program that has
# written what `--gtest_list_tests` prints beside it, as `<program>_cases.txt`. Each is the test
# `<name>.<suite>`; its cases that match <long>, if it has others too, are `<name>.<suite>.long`.
function(isoloss_add_suites name program long timeout labels)
  set(suites "")
  if(EXISTS ${program}_cases.txt)
    file(READ ${program}_cases.txt text)
    string(REGEX REPLACE " *#[^\n]*" "" text "${text}")
    string(REGEX MATCHALL "[^ \n]+\\.\n(  [^\n]+\n)+" suites "${text}")
  endif()
  if(NOT suites)
    add_test(${name}_NOT_BUILT ${name}_NOT_BUILT)
  endif()
  foreach(suite IN LISTS suites)
    string(REGEX MATCH "^[^\n]+" prefix "${suite}")
    string(REGEX REPLACE "\\.$" "" title "${name}.${prefix}")
    string(REGEX MATCHALL "  [^\n]+" cases "${suite}")
    list(TRANSFORM cases REPLACE "^  " "${prefix}")
    set(long_cases "")
    if(long)
      set(long_cases ${cases})
      list(FILTER long_cases INCLUDE REGEX "${long}")
      list(FILTER cases EXCLUDE REGEX "${long}")
    endif()
    isoloss_add_suite("${title}" ${program} "${cases}" ${timeout} "${labels}")
    if(cases)
      string(APPEND title ".long")
    endif()
    isoloss_add_suite("${title}" ${program} "${long_cases}" ${timeout} "${labels};long")
  endforeach()
endfunction()
