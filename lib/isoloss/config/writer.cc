#include "isoloss/config/writer.h"

#include <fmt/ranges.h>

namespace isoloss::config {

void Writer::Section(std::string_view name) {
  section_ = name;
  text_ += fmt::format("{}[{}]\n", text_.empty() ? "" : "\n", name);
}

void Writer::TableHeading(std::string_view key) {
  const bool nested = !section_.empty();
  section_ = nested ? fmt::format("{}.{}", section_, key) : std::string(key);
  text_ +=
      fmt::format("{}[[{}]]\n", nested || text_.empty() ? "" : "\n", section_);
}

void Writer::Line(std::string_view key, std::string_view value) {
  text_ += fmt::format("{} = {}\n", key, value);
}

void Writer::Real(std::string_view key, const std::optional<double>& value,
                  Interval, std::string_view) {
  if (value) Line(key, RealText(*value));
}

void Writer::Reals(std::string_view key, const std::vector<double>& values,
                   const Interval&) {
  if (values.empty()) return;  // as Reader leaves them if the key is absent
  std::vector<std::string> texts;
  for (const double value : values) texts.push_back(RealText(value));
  Line(key, fmt::format("[{}]", fmt::join(texts, ", ")));
}

void Writer::Flag(std::string_view key, bool value) {
  Line(key, value ? "true" : "false");
}

void Writer::Text(std::string_view key, std::string_view value) {
  Line(key, Quoted(value));
}

void Writer::Texts(std::string_view key,
                   const std::optional<std::vector<std::string>>& values) {
  if (!values) return;
  std::vector<std::string> quoted;
  for (const std::string& value : *values) quoted.push_back(Quoted(value));
  Line(key, fmt::format("[{}]", fmt::join(quoted, ", ")));
}

void Writer::Numbers(std::string_view key,
                     const std::vector<uint64_t>& values) {
  if (values.empty()) return;  // as Reader leaves them if the key is absent
  Line(key, fmt::format("[{}]", fmt::join(values, ", ")));
}

void Writer::Words(std::string_view key, const std::vector<std::string>& values,
                   std::span<const std::string>, std::string_view none) {
  if (values.empty() && !none.empty()) return Text(key, none);
  Texts(key, values);
}

}  // namespace isoloss::config
