# Included if ISOLOSS_PORTABLE is on: the program takes what it can from archives, and looks for
# other libraries in ../lib beside itself, before it asks the system. So it runs where glibc alone is.
include(CheckSourceCompiles)

# Whoever compiles it waits for it, and mends no warnings. GCC looks for memory to use again only
# beyond 512 MB; it would spend 6 % of its time on that, and take 0.7 GB for 1.
add_compile_options(-w)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options(--param=ggc-min-heapsize=524288)
endif()

# isoloss_portable(<program>): has an old search path. Unlike a new one, it comes before
# LD_LIBRARY_PATH, which clusters set to other compilers' libraries, and it counts for libraries
# of libraries, too.
function(isoloss_portable program)
  set_target_properties(${program} PROPERTIES
    INSTALL_RPATH "$ORIGIN/../lib" INSTALL_RPATH_USE_LINK_PATH OFF)
  target_link_options(${program} PRIVATE -Wl,--disable-new-dtags -Wl,--strip-all)
endfunction()

# isoloss_use_archives(<target> CALL <C expression> HEADER <header> ARCHIVES <names>)
# Links these archives in place of what the imported target links, where all are there and a
# program that makes the call links with no other library. Else the target stays as it is.
function(isoloss_use_archives target)
  cmake_parse_arguments(ARG "" "CALL;HEADER" "ARCHIVES" ${ARGN})
  set(archives "")
  foreach(name IN LISTS ARG_ARCHIVES)
    find_library(ISOLOSS_ARCHIVE_${name} NAMES lib${name}.a)
    mark_as_advanced(ISOLOSS_ARCHIVE_${name})
    list(APPEND archives ${ISOLOSS_ARCHIVE_${name}})
  endforeach()
  get_target_property(includes ${target} INTERFACE_INCLUDE_DIRECTORIES)
  set(CMAKE_REQUIRED_INCLUDES ${includes})
  set(CMAKE_REQUIRED_LIBRARIES ${archives} ${CMAKE_DL_LIBS} m)
  string(MAKE_C_IDENTIFIER "ISOLOSS_LINKS_${target}" links)
  if(NOT archives MATCHES "NOTFOUND")
    check_source_compiles(C
      "#include <${ARG_HEADER}>\nint main(void) { return ${ARG_CALL}; }" ${links})
  endif()
  if(${links})
    set_target_properties(${target} PROPERTIES
      INTERFACE_LINK_LIBRARIES "${archives};${CMAKE_DL_LIBS};m" INTERFACE_LINK_DIRECTORIES "")
  else()
    message(STATUS "Portable program: no archives of ${target}, whose libraries lie beside it")
  endif()
endfunction()

isoloss_use_archives(HDF5::HDF5 HEADER hdf5.h CALL "H5open()" ARCHIVES hdf5_serial sz aec z)
isoloss_use_archives(PkgConfig::zlib HEADER zlib.h CALL "zlibVersion()[0]" ARCHIVES z)
isoloss_use_archives(PkgConfig::xxhash HEADER xxhash.h CALL "(int)XXH3_64bits(0, 0)"
  ARCHIVES xxhash)
