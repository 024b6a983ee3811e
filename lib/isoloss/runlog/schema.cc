#include "isoloss/runlog/schema.h"

#include <fmt/format.h>

#include <string_view>
#include <type_traits>

namespace isoloss::runlog {
namespace {

template <typename T>
constexpr std::string_view TypeName() {
  if constexpr (std::is_same_v<T, int32_t>) return "int32";
  if constexpr (std::is_same_v<T, int64_t>) return "int64";
  if constexpr (std::is_same_v<T, double>) return "float64";
  if constexpr (std::is_same_v<T, bool>) return "bool";
  if constexpr (std::is_same_v<T, std::string>) return "UTF-8 string";
}

/// Visitor of the schema that writes it down.
class MarkdownTable {
 public:
  void Version(const Field& field, int64_t expected) {
    text_ = "### Attributes of the file\n\n";
    Head("attribute");
    Row(field, fmt::format("int64, {}; older ones are read too", expected));
  }

  template <typename T>
  void Attribute(const Field& field, const T& /*value*/) {
    Row(field, TypeName<T>());
  }

  void Group(const char* name, const char* description, int64_t since) {
    text_ += fmt::format("\n### Group `/{}`\n\n{}{}.\n\n", name, description,
                         Since(since));
    Head("dataset");
  }

  template <typename T>
  void Column(const Field& field, const std::vector<T>& /*values*/) {
    Row(field, fmt::format("{} [rows]", TypeName<T>()));
  }

  template <typename T>
  void Array(const Field& field, const std::vector<T>& /*values*/,
             std::initializer_list<Axis<const int64_t>> axes) {
    std::string extent = "rows";
    for (const auto& axis : axes) extent += fmt::format(", {}", axis.name);
    Row(field, fmt::format("{} [{}]", TypeName<T>(), extent));
  }

  void Labels(const Field& field, const std::vector<std::string>& /*names*/,
              const Axis<const int64_t>& axis) {
    Row(field, fmt::format("{} [{}]", TypeName<std::string>(), axis.name));
  }

  void Count(const Field& field, int64_t /*rows*/) {
    Row(field, fmt::format("{} [rows]", TypeName<int64_t>()));
  }

  template <typename T>
  void Member(const Field& field, const std::vector<Event>& /*rows*/,
              T Event::* /*member*/) {
    Row(field, fmt::format("{} [rows]", TypeName<T>()));
  }

  const std::string& text() const { return text_; }

 private:
  void Head(std::string_view kind) {
    text_ += fmt::format("| {} | type | unit | meaning |\n|---|---|---|---|\n",
                         kind);
  }
  void Row(const Field& field, std::string_view type) {
    text_ += fmt::format("| `{}` | {} | {} | {}{} |\n", field.name, type,
                         field.unit, field.description, Since(field.since));
  }

  static std::string Since(int64_t version) {
    return version > 1 ? fmt::format(" (from version {})", version) : "";
  }

  std::string text_;
};

}  // namespace

std::string SchemaMarkdown() {
  MarkdownTable table;
  const RunLog empty;
  VisitRunLog(table, empty);
  return table.text();
}

}  // namespace isoloss::runlog
