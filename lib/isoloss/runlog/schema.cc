#include "isoloss/runlog/schema.h"

#include <string_view>

#include "isoloss/base/printable.h"

namespace isoloss::runlog {
std::string ShownText(const Field& field, std::string_view text) {
  const std::string_view name = field.name;
  // An ensemble has a second set, of its reference.
  const bool has_lines =
      name.ends_with("experiment_text") || name.ends_with("resolved_recipe");
  return has_lines ? PrintableLines(text) : Printable(text);
}

}  // namespace isoloss::runlog
