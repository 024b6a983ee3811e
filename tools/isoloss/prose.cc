#include "prose.h"

#include <fmt/format.h>

#include "isoloss/base/printable.h"
#include "isoloss/document/text_layout.h"
#include "isoloss/report/terminal_width.h"

namespace isoloss::cli {

void PrintProse(std::FILE* file, const std::string& text) {
  fmt::print(file, "{}",
             document::WrapProse(PrintableLines(text),
                                 report::ProseStyle(fileno(file))));
}

}  // namespace isoloss::cli
