#include "isoloss/runlog/layout.h"

#include <fmt/format.h>

#include <algorithm>

#include "isoloss/runlog/sealed_file.h"

namespace isoloss::runlog {
namespace {

std::string Line(const std::string& path, const h5::Values& values,
                 const std::string& unit) {
  return fmt::format("{}: {} with {} axes{}{}", path, values.type_name,
                     values.extent.size(), unit.empty() ? "" : ", in ", unit);
}

void AddLines(const std::string& path, const h5::Object& object,
              std::vector<std::string>& lines) {
  std::string unit;
  if (const h5::Values* text = object.Attribute("unit");
      text != nullptr && text->type == h5::ValueType::kString) {
    unit = h5::RawText(*text);
  }
  if (!object.is_group) lines.push_back(Line(path, object.values, unit));
  for (const auto& [name, values] : object.attributes) {
    lines.push_back(Line(path + "@" + name, values, ""));
  }
  for (const auto& [name, member] : object.members) {
    AddLines(path + "/" + name, member, lines);
  }
}

}  // namespace

std::vector<std::string> LayoutOf(const std::filesystem::path& path) {
  std::vector<std::string> lines;
  ReadSealedFile(path, kRunLogFile,
                 [&](const h5::Object& root) { AddLines("", root, lines); });
  std::ranges::sort(lines);
  return lines;
}

}  // namespace isoloss::runlog
