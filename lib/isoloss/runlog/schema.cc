#include "isoloss/runlog/schema.h"

#include <fmt/format.h>

#include <string_view>
#include <type_traits>

namespace isoloss::runlog {
namespace {

template <typename T>
constexpr std::string_view TypeName() {
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
    Row(field, fmt::format("int64, always {}", expected));
  }

  template <typename T>
  void Attribute(const Field& field, const T& /*value*/) {
    Row(field, TypeName<T>());
  }

  void Group(const char* name, const char* description) {
    text_ += fmt::format("\n### Group `/{}`\n\n{}.\n\n", name, description);
    Head("dataset");
  }

  template <typename T>
  void Column(const Field& field, const std::vector<T>& /*values*/) {
    Row(field, fmt::format("{} [rows]", TypeName<T>()));
  }

  void Table(const Field& field, const std::vector<double>& /*values*/,
             int64_t /*width*/) {
    Row(field, fmt::format("{} [rows, columns]", TypeName<double>()));
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
    text_ += fmt::format("| `{}` | {} | {} | {} |\n", field.name, type,
                         field.unit, field.description);
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
