# Build rules shared by every module: one way to declare a library, a test, a
# benchmark and a registered family of source files.

include_guard(GLOBAL)
include(GNUInstallDirs)

# isoloss_export(<name>): installs isoloss_<name> as isoloss::<name>, its headers too.
function(isoloss_export name)
  set_target_properties(isoloss_${name} PROPERTIES EXPORT_NAME ${name})
  install(TARGETS isoloss_${name} EXPORT isoloss
    ARCHIVE COMPONENT development
    FILE_SET HEADERS COMPONENT development)
endfunction()

# The numerics contract's compiler switches, in one place (docs/numerics.md):
# contraction would fuse a multiply and an add behind the source's back. Exported, since
# headers compute, too.
add_library(isoloss_numerics INTERFACE)
target_compile_options(isoloss_numerics INTERFACE -ffp-contract=off)
isoloss_export(numerics)

add_library(isoloss_warnings INTERFACE)
target_compile_options(isoloss_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wnon-virtual-dtor
  # A name of one file of a batch may be that of another's.
  $<$<NOT:$<BOOL:$<TARGET_PROPERTY:UNITY_BUILD>>>:-Wshadow> -Wold-style-cast
  -Woverloaded-virtual -Wconversion -Wno-sign-conversion -Wdouble-promotion
  -Wformat=2)

# On with the compiler of Debian 12, whose warnings are known; the same for whoever
# builds, since another switch would compile each file again.
set(warnings_as_errors OFF)
if(PROJECT_IS_TOP_LEVEL AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU"
   AND CMAKE_CXX_COMPILER_VERSION MATCHES "^12\\.")
  set(warnings_as_errors ON)
endif()
option(ISOLOSS_WARNINGS_AS_ERRORS "Treat warnings as errors" ${warnings_as_errors})
if(ISOLOSS_WARNINGS_AS_ERRORS)
  target_compile_options(isoloss_warnings INTERFACE -Werror)
endif()

# isoloss_cold(<target>): shortens the compile of what never runs for long. -O1 takes a fifth more of it.
function(isoloss_cold target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-Og>)
endfunction()

# isoloss_hot(<files>): optimizes the files of a cold target that do run for long.
function(isoloss_hot)
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS $<$<CONFIG:Release>:-O3>
    SKIP_UNITY_BUILD_INCLUSION ON SKIP_PRECOMPILE_HEADERS ON)
endfunction()

# isoloss_precompiled(<name> HEADERS <...> [DEPENDS ...])
# Headers of other projects that most files include, compiled once for all targets that
# say target_precompile_headers(... REUSE_FROM <name>). A target needs those of its own level of
# optimization: GCC keeps the headers' for much of what includes them, or ends with an internal
# error. Files still include what they use:
# each header is compiled without these, and so are sources by tools/dev/tidy.
function(isoloss_precompiled name)
  cmake_parse_arguments(ARG "" "" "HEADERS;DEPENDS" ${ARGN})
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${name}.cc)
  file(CONFIGURE OUTPUT ${source} CONTENT "")
  add_library(${name} OBJECT EXCLUDE_FROM_ALL ${source})
  target_compile_features(${name} PRIVATE cxx_std_20)
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} isoloss_numerics isoloss_warnings)
  target_precompile_headers(${name} PRIVATE ${ARG_HEADERS})
endfunction()

# The preset whose folder is built from nothing, `release`, compiles the files of a module in
# batches: the compiler reads what they share once for each. All others compile file by file.
option(ISOLOSS_UNITY_BUILD "Compile a module's files in batches" OFF)

# isoloss_batches(<target> <size>): compiles its files in batches of at most as many, if this
# build does. A larger size saves processor time, but many processors wait for the last batch.
function(isoloss_batches target size)
  if(NOT ISOLOSS_UNITY_BUILD)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${size})
  # Files of a batch are no headers of each other, which this warning takes them for.
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
endfunction()

# isoloss_library(<name> [COLD] [ALONE] SOURCES ... [HEADERS ...] DEPENDS ... [PRIVATE_DEPENDS ...])
# Declares lib/isoloss/<name> as isoloss::<name>. The headers of include/isoloss/<name> are
# installed; HEADERS are internal. The target all_verify_interface_header_sets compiles
# each header of both kinds alone. COLD: next to nothing in it is computed
# for each element, so that the compiler's time counts for more than its own.
# ALONE: its files are not compiled in batches.
function(isoloss_library name)
  cmake_parse_arguments(ARG "COLD;ALONE" "" "SOURCES;HEADERS;DEPENDS;PRIVATE_DEPENDS" ${ARGN})
  add_library(isoloss_${name} STATIC ${ARG_SOURCES})
  add_library(isoloss::${name} ALIAS isoloss_${name})
  file(GLOB public_headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/isoloss/${name}/*.h)
  target_sources(isoloss_${name} PUBLIC FILE_SET HEADERS
    BASE_DIRS ${PROJECT_SOURCE_DIR}/include FILES ${public_headers})
  target_include_directories(isoloss_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/lib>)
  target_compile_features(isoloss_${name} PUBLIC cxx_std_20)
  target_link_libraries(isoloss_${name}
    PUBLIC ${ARG_DEPENDS} isoloss_numerics
    PRIVATE ${ARG_PRIVATE_DEPENDS} $<BUILD_INTERFACE:isoloss_warnings>)
  if(ARG_COLD)
    isoloss_cold(isoloss_${name})
    target_precompile_headers(isoloss_${name} REUSE_FROM isoloss_cold_headers)
  else()
    target_precompile_headers(isoloss_${name} REUSE_FROM isoloss_headers)
  endif()
  if(NOT ARG_ALONE)
    isoloss_batches(isoloss_${name} 24)
  endif()
  set_target_properties(isoloss_${name} PROPERTIES
    VERIFY_INTERFACE_HEADER_SETS ON)
  isoloss_export(${name})
  if(ARG_HEADERS)
    add_library(isoloss_${name}_internal INTERFACE)
    target_sources(isoloss_${name}_internal INTERFACE FILE_SET HEADERS
      BASE_DIRS ${PROJECT_SOURCE_DIR}/lib FILES ${ARG_HEADERS})
    target_link_libraries(isoloss_${name}_internal INTERFACE isoloss_${name})
    set_target_properties(isoloss_${name}_internal PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)
  endif()
endfunction()

# isoloss_test_options(<target> <optimized>): how tests and what they share are compiled. The
# libraries do the work; the compiler would spend half of its time on optimizing the tests.
function(isoloss_test_options target optimized)
  target_link_libraries(${target} PRIVATE GTest::gmock isoloss_numerics isoloss_warnings)
  target_compile_definitions(${target} PRIVATE ISOLOSS_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  if(optimized)
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
    target_precompile_headers(${target} REUSE_FROM isoloss_optimized_test_headers)
  else()
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O0>)
    target_precompile_headers(${target} REUSE_FROM isoloss_test_headers)
  endif()
endfunction()

# isoloss_test(<name> [OPTIMIZED] LABELS ... [LONG regex] [TIMEOUT seconds] [UNITS ...] [SOURCES ...] [DEPENDS ...])
# Builds one program of <unit>_test.cc for each unit, or of <name>.cc without units, with
# GoogleTest, and registers its suites under the labels (IsolossSuites.cmake). Units are compiled
# in batches: names of each file are in a namespace that is called as the file.
# Labels: unit, conformance, golden, determinism, cli; `long` marks what the
# quick tier leaves out, some five seconds and more. LONG: only the cases that
# match have this label, too. TIMEOUT: of a suite. OPTIMIZED: it computes for seconds itself.
function(isoloss_test name)
  cmake_parse_arguments(ARG "OPTIMIZED" "TIMEOUT;LONG" "LABELS;UNITS;SOURCES;DEPENDS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 900)
  endif()
  if(ARG_UNITS)
    list(TRANSFORM ARG_UNITS APPEND _test.cc)
    add_executable(${name} ${ARG_UNITS} ${ARG_SOURCES})
    isoloss_batches(${name} 8)
  else()
    add_executable(${name} ${name}.cc ${ARG_SOURCES})
  endif()
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} GTest::gtest_main)
  isoloss_test_options(${name} ${ARG_OPTIMIZED})
  set(program ${CMAKE_CURRENT_BINARY_DIR}/${name})
  add_custom_command(TARGET ${name} POST_BUILD
    COMMAND ${name} --gtest_list_tests > ${program}_cases.txt)
  string(REGEX REPLACE "_test$" "" title ${name})
  file(WRITE ${program}_suites.cmake
    "include(\"${PROJECT_SOURCE_DIR}/lib/cmake/IsolossSuites.cmake\")\n"
    "isoloss_add_suites(${title} \"${program}\" \"${ARG_LONG}\" ${ARG_TIMEOUT} \"${ARG_LABELS}\")\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${program}_suites.cmake)
endfunction()

# isoloss_benchmark(<name> DEPENDS ...): a Google Benchmark program.
function(isoloss_benchmark name)
  cmake_parse_arguments(ARG "" "" "DEPENDS" ${ARGN})
  add_executable(${name} ${name}.cc)
  target_precompile_headers(${name} REUSE_FROM isoloss_headers)
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} benchmark::benchmark
    isoloss_numerics isoloss_warnings)
endfunction()

# Reads the lines `MACRO(name)` of <list_file> and returns `name.cc` for each,
# so a plug-in is compiled exactly when it is registered.
function(isoloss_registered_sources out list_file macro)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${list_file})
  file(STRINGS ${list_file} lines REGEX "^${macro}\\([a-z0-9_]+\\)$")
  list(TRANSFORM lines REPLACE "^${macro}\\(([a-z0-9_]+)\\)$" "\\1.cc")
  set(${out} ${lines} PARENT_SCOPE)
endfunction()
