#include "isoloss/report/schema_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <type_traits>
#include <vector>

#include "isoloss/document/text_layout.h"
#include "isoloss/runlog/schema.h"

namespace isoloss::report {
namespace {

using document::Json;
using document::kBold;
using document::Paint;
using document::TextStyle;
using document::Wrap;

using runlog::Axis;
using runlog::Field;
using runlog::When;

struct DescribedDataset {
  std::string name;
  std::string type;  ///< with its shape
  std::string unit;
  std::string values;
  std::string meaning;
};

struct DescribedGroup {
  std::string name;  ///< "" for the attributes of the file
  std::string meaning;
  std::vector<DescribedDataset> datasets;
};

/// "only with MoE layers" and the like; "" for kAlways.
std::string_view ConditionText(When when) {
  switch (when) {
    case When::kAlways:
      return "";
    case When::kExperts:
      return "only with MoE layers";
    case When::kTransport:
      return "only if rows travel between ranks";
    case When::kPairs:
      return "only if rows travel between ranks, from an evaluation after "
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

std::string SinceText(int64_t version) {
  return version > 1 ? fmt::format(" (from version {})", version) : "";
}

/// Visitor of the schema (VisitRunLog) that describes it.
class SchemaDescriber {
 public:
  void Version(const Field& field, int64_t expected) {
    Add(field, fmt::format("int64, {}; older ones are read too", expected));
  }

  template <typename T>
  void Attribute(const Field& field, const T& /*value*/) {
    Add(field, std::string(TypeName<T>()));
  }

  void Group(const char* name, const char* meaning, int64_t since) {
    groups_.push_back({name, meaning + SinceText(since), {}});
  }

  template <typename T>
  void Column(const Field& field, const std::vector<T>& /*values*/) {
    Add(field, fmt::format("{} [rows]", TypeName<T>()));
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
    Add(field, fmt::format("{} [{}]", TypeName<T>(), extent));
  }

  void Labels(const Field& field, const std::vector<std::string>& /*names*/,
              const Axis<const int64_t>& axis) {
    Add(field, fmt::format("{} [{}]", TypeName<std::string>(), axis.name));
  }

  void Count(const Field& field, int64_t /*rows*/) {
    Add(field, fmt::format("{} [rows]", TypeName<int64_t>()));
  }

  template <typename T>
  void Member(const Field& field, const std::vector<runlog::Event>& /*rows*/,
              T runlog::Event::* /*member*/) {
    Add(field, fmt::format("{} [rows]", TypeName<T>()));
  }

  std::vector<DescribedGroup> Take() { return std::move(groups_); }

 private:
  void Add(const Field& field, std::string type) {
    const std::string_view when = ConditionText(field.when);
    groups_.back().datasets.push_back(
        {field.name, std::move(type), field.unit, field.domain.Describe(),
         fmt::format("{}{}{}{}", field.description, when.empty() ? "" : "; ",
                     when, SinceText(field.since))});
  }

  std::vector<DescribedGroup> groups_ = {{"", "Attributes of the file", {}}};
};

std::vector<DescribedGroup> DescribeSchema() {
  SchemaDescriber describer;
  const runlog::RunLog empty;
  runlog::VisitRunLog(describer, empty);
  return describer.Take();
}

/// A paragraph below a row.
std::string Paragraph(const std::string& text, const TextStyle& style) {
  constexpr size_t kIndent = 4;
  return fmt::format("{:{}}{}\n", "", kIndent,
                     Wrap(text, kIndent, kIndent, style));
}

std::string GroupText(const DescribedGroup& group, const TextStyle& style) {
  const bool is_file = group.name.empty();
  const std::string_view kind = is_file ? "attribute" : "dataset";
  size_t name_width = kind.size();
  size_t type_width = 0;
  for (const DescribedDataset& dataset : group.datasets) {
    name_width = std::max(name_width, dataset.name.size());
    type_width = std::max(type_width, dataset.type.size());
  }
  const auto row = [&](std::string_view name, std::string_view type,
                       std::string_view unit) {
    std::string line = fmt::format("  {:<{}}  {:<{}}  {}", name, name_width,
                                   type, type_width, unit);
    line.erase(line.find_last_not_of(' ') + 1);
    return line + "\n";
  };

  std::string text =
      Paint(is_file ? group.meaning
                    : fmt::format("/{}: {}", group.name, group.meaning),
            kBold, style) +
      "\n" + row(kind, is_file ? "type" : "type and shape", "unit");
  for (const DescribedDataset& dataset : group.datasets) {
    text += row(dataset.name, dataset.type, dataset.unit);
    text += Paragraph(dataset.meaning, style);
    if (!dataset.values.empty()) {
      text += Paragraph("values: " + dataset.values, style);
    }
  }
  return text;
}

}  // namespace

std::string SchemaText(const TextStyle& style) {
  std::string text;
  for (const DescribedGroup& group : DescribeSchema()) {
    if (!text.empty()) text += '\n';
    text += GroupText(group, style);
  }
  return text;
}

Json SchemaJson() {
  Json json = {{"groups", Json::array()}};
  for (const DescribedGroup& group : DescribeSchema()) {
    Json datasets = Json::array();
    for (const DescribedDataset& dataset : group.datasets) {
      datasets.push_back({{"name", dataset.name},
                          {"type", dataset.type},
                          {"unit", dataset.unit},
                          {"values", dataset.values},
                          {"meaning", dataset.meaning}});
    }
    json["groups"].push_back({{"name", group.name},
                              {"meaning", group.meaning},
                              {"datasets", std::move(datasets)}});
  }
  return json;
}

}  // namespace isoloss::report
