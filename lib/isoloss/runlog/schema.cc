#include "isoloss/runlog/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "isoloss/base/printable.h"

namespace isoloss::runlog {

std::string ShownText(const Field& field, std::string_view text) {
  const std::string_view name = field.name;
  // An ensemble has a second set of these texts, from its reference.
  const bool has_lines =
      name.ends_with("experiment_text") || name.ends_with("resolved_recipe");
  return has_lines ? PrintableLines(text) : Printable(text);
}

Group::Group(const char* group_name, const char* meaning, int64_t since_version,
             Columns of)
    : name(group_name),
      description(meaning),
      since(since_version),
      columns(std::move(of)) {
  Role& first = columns.front().role;
  if (first == Role::kRows) first = Role::kIndex;
  if (first != Role::kPlaces) return;
  for (Column& column : columns) {
    if (column.role == Role::kRows) column.role = Role::kSquare;
  }
}

std::span<const Column> Group::ColumnsIn(const View& log) const {
  const int64_t version =
      own_version == kNowhere ? 1 : log.At<int64_t>(own_version);
  const auto newer = std::ranges::find_if(
      columns,
      [version](const Column& column) { return column.own_since > version; });
  return {columns.begin(), newer};
}

std::string Group::PathOf(const Column& column) const {
  return fmt::format("/{}/{}", name, column.field.name);
}

Schema Joined(const std::vector<Schema>& parts) {
  Schema schema;
  for (const Schema& part : parts) {
    schema.insert(schema.end(), part.begin(), part.end());
  }
  return schema;
}

void AppendRow(const Columns& columns, const View& row, MutableView to) {
  for (const Column& column : columns) {
    to.WithValues(column, [&]<typename T>(std::vector<T>& values) {
      values.push_back(row.At<T>(column.in_row));
    });
  }
}

}  // namespace isoloss::runlog
