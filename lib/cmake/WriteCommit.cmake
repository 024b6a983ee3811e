# Writes OUTPUT, a header that names the commit of SOURCE_DIR, if it changed.
# Run at every build: cmake -DSOURCE_DIR=… -DOUTPUT=… -P WriteCommit.cmake
find_program(GIT git)
set(commit unknown)
if(GIT)
  # --long: a tag alone names no source, since other repositories may have it, too.
  execute_process(COMMAND ${GIT} -C ${SOURCE_DIR} describe --always --long --abbrev=12 --match=v[0-9]* --dirty
    OUTPUT_VARIABLE described OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
  if(status EQUAL 0)
    set(commit ${described})
  endif()
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "#define ISOLOSS_COMMIT \"${commit}\"\n")
