# Writes OUTPUT, the C++ source of lib/isoloss/report/page/files.h, from HTML, STYLE and
# SCRIPTS (a list between `|`), and fails where one could end the element that it stands in:
# cmake -DHTML=… -DSTYLE=… -DSCRIPTS=… -DMOST_BYTES=… -DOUTPUT=… -P EmbedPage.cmake
string(REPLACE "|" ";" SCRIPTS "${SCRIPTS}")
set(bytes 0)

# Adds the C++ variable `name` with the text of `file`, in pieces that every compiler takes.
function(embed name file)
  file(SIZE ${file} size)
  file(READ ${file} text)
  string(LENGTH "${text}" length)
  if(NOT length EQUAL size)
    message(FATAL_ERROR "${file}: it holds bytes that are no text, but a page is text. Mend the file.")
  endif()
  string(TOLOWER "${text}" lower)
  foreach(forbidden IN LISTS ARGN)
    string(FIND "${lower}" "${forbidden}" place)
    if(NOT place EQUAL -1)
      message(FATAL_ERROR "${file}: it holds `${forbidden}` at byte ${place}, which would end the element of the page that it stands in. Write it in two parts.")
    endif()
  endforeach()
  set(code "constexpr std::string_view ${name} =\n")
  set(place 0)
  while(place LESS size)
    string(SUBSTRING "${text}" ${place} 8000 piece)
    string(APPEND code "    R\"isoloss_page(${piece})isoloss_page\"\n")
    math(EXPR place "${place} + 8000")
  endwhile()
  if(size EQUAL 0)
    string(APPEND code "    \"\"\n")
  endif()
  math(EXPR total "${bytes} + ${size}")
  set(bytes ${total} PARENT_SCOPE)
  set(source "${source}${code}    ;\n" PARENT_SCOPE)
endfunction()

set(source "// Made by lib/cmake/EmbedPage.cmake.
#include \"isoloss/report/page/files.h\"

#include <array>

#pragma GCC diagnostic ignored \"-Woverlength-strings\"

namespace isoloss::report::page_files {
namespace {

")
embed(kHtml ${HTML})
foreach(marker STYLE DATA SCRIPTS)
  file(STRINGS ${HTML} lines REGEX "^<!-- ISOLOSS:${marker} -->$")
  list(LENGTH lines count)
  if(NOT count EQUAL 1)
    message(FATAL_ERROR "${HTML}: it has ${count} lines `<!-- ISOLOSS:${marker} -->`, but the page needs one. Mend the file.")
  endif()
endforeach()
embed(kStyle ${STYLE} "</style")
set(count 0)
set(names "")
foreach(script IN LISTS SCRIPTS)
  embed(kScript${count} ${script} "</script" "<script" "<!--")
  string(APPEND names "kScript${count}, ")
  math(EXPR count "${count} + 1")
endforeach()
if(bytes GREATER MOST_BYTES)
  message(FATAL_ERROR "${HTML} and what belongs to it have ${bytes} bytes, but every page may have ${MOST_BYTES} of them (kMostFrameBytes of page_values.h). Make them smaller.")
endif()
string(APPEND source "constexpr std::array<std::string_view, ${count}> kScripts = {${names}};

}  // namespace

std::string_view Html() { return kHtml; }
std::string_view Style() { return kStyle; }
std::span<const std::string_view> Scripts() { return kScripts; }

}  // namespace isoloss::report::page_files
")
file(WRITE ${OUTPUT} "${source}")
