#include "isoloss/report/schema_document.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "isoloss/runlog/schema.h"

namespace isoloss::report {
namespace {

using document::Document;
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

/// Returns "only with MoE layers" or the like; "" for kAlways.
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

/// Returns the type of a column with its shape: "float64 [rows, layers]".
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

Document GroupDocument(const DescribedGroup& group) {
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
    return line.erase(line.find_last_not_of(' ') + 1);
  };

  Document document;
  document.Put("name", group.name);
  document.Put("meaning", group.meaning);
  document.Add(document::Title{
      is_file ? group.meaning
              : fmt::format("/{}: {}", group.name, group.meaning)});
  document.Say(row(kind, is_file ? "type" : "type and shape", "unit"));
  document.PutEach(
      "datasets", group.datasets, [&](const DescribedDataset& dataset) {
        Document of;
        of.Put("name", dataset.name);
        of.Put("type", dataset.type);
        of.Put("unit", dataset.unit);
        of.Put("values", dataset.values);
        of.Put("meaning", dataset.meaning);
        of.Say(row(dataset.name, dataset.type, dataset.unit));
        of.Add(document::Line{.text = dataset.meaning, .indent = 4, .hang = 4});
        if (!dataset.values.empty()) {
          of.Add(document::Line{
              .text = "values: " + dataset.values, .indent = 4, .hang = 4});
        }
        return of;
      });
  return document;
}

}  // namespace

Document SchemaDocument() {
  Document document;
  document.PutEach("groups", DescribeSchema(), GroupDocument);
  return document;
}

}  // namespace isoloss::report
