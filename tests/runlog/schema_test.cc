#include "isoloss/runlog/schema.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <type_traits>

namespace isoloss::runlog {
namespace {

/// "only with MoE layers" and the like; "" for kAlways.
std::string_view Describe(When when) {
  switch (when) {
    case When::kAlways:
      return "";
    case When::kExperts:
      return "only with MoE layers";
    case When::kTransport:
      return "only if rows travel between ranks";
    case When::kPairs:
      return "only if rows travel between ranks, from an evaluation behind "
             "step 0 on";
    case When::kDigests:
      return "only with `log.digests_*`";
    case When::kStatistics:
      return "only with `log.statistics_*`";
    case When::kTensors:
      return "only with `log.digests_*` or `log.statistics_*`";
    case When::kRouting:
      return "only with `log.routing`";
    case When::kReplay:
      return "only with `routing.mode = \"replay\"`";
  }
  return "";
}

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
  void RequiredColumn(const Field& field, const std::vector<T>& values) {
    Column(field, values);
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
    text_ += fmt::format(
        "| {} | type | unit | values | meaning |\n|---|---|---|---|---|\n",
        kind);
  }
  void Row(const Field& field, std::string_view type) {
    const std::string_view when = Describe(field.when);
    text_ +=
        fmt::format("| `{}` | {} | {} | {} | {}{}{}{} |\n", field.name, type,
                    field.unit, field.domain.Describe(), field.description,
                    when.empty() ? "" : "; ", when, Since(field.since));
  }

  static std::string Since(int64_t version) {
    return version > 1 ? fmt::format(" (from version {})", version) : "";
  }

  std::string text_;
};

/// The layout as Markdown tables, as docs/run-log.md shows it.
std::string SchemaMarkdown() {
  MarkdownTable table;
  const RunLog empty;
  VisitRunLog(table, empty);
  return table.text();
}

TEST(SchemaMarkdown, StandsInTheDocumentation) {
  std::ifstream file(ISOLOSS_SOURCE_DIR "/docs/run-log.md");

  const std::string documentation{std::istreambuf_iterator<char>(file), {}};

  EXPECT_THAT(documentation, ::testing::HasSubstr(SchemaMarkdown()))
      << "docs/run-log.md lags behind lib/isoloss/runlog/schema.h: paste the "
         "expected text above.";
}

}  // namespace
}  // namespace isoloss::runlog
