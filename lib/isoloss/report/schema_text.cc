#include "isoloss/report/schema_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
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
using runlog::Column;
using runlog::Role;
using runlog::ValueType;
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

std::string_view TypeName(ValueType type) {
  switch (type) {
    case ValueType::kInt32:
      return "int32";
    case ValueType::kInt64:
      return "int64";
    case ValueType::kDouble:
      return "float64";
    case ValueType::kBool:
      return "bool";
    default:
      return "UTF-8 string";
  }
}

std::string SinceText(int64_t version) {
  return version > 1 ? fmt::format(" (from version {})", version) : "";
}

/// The type of a column with its shape: "float64 [rows, layers]".
std::string TypeText(const Column& column) {
  if (column.role == Role::kRunVersion) {
    return fmt::format("int64, {}; older ones are read too", column.newest);
  }
  std::string text(TypeName(column.type));
  if (column.role == Role::kAttribute) return text;
  std::vector<std::string_view> extents;
  if (column.role != Role::kLabels) extents.emplace_back("rows");
  for (const runlog::Axis& axis : column.axes) extents.emplace_back(axis.name);
  return fmt::format("{} [{}]", text, fmt::join(extents, ", "));
}

DescribedDataset Described(const Column& column) {
  const runlog::Field& field = column.field;
  const std::string_view when = ConditionText(field.when);
  return {field.name, TypeText(column), field.unit, field.domain.Describe(),
          fmt::format("{}{}{}{}", field.description, when.empty() ? "" : "; ",
                      when, SinceText(field.since))};
}

std::vector<DescribedGroup> DescribeSchema() {
  std::vector<DescribedGroup> groups = {{"", "Attributes of the file", {}}};
  for (const runlog::Group& group : runlog::SchemaOf<runlog::RunLog>()) {
    if (!group.IsFile()) {
      groups.push_back(
          {group.name, group.description + SinceText(group.since), {}});
    }
    for (const Column& column : group.columns) {
      groups.back().datasets.push_back(Described(column));
    }
  }
  return groups;
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
