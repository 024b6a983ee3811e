#include "isoloss/runlog/export.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <concepts>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/base/nearest_name.h"
#include "isoloss/runlog/probe_log_schema.h"
#include "isoloss/runlog/schema.h"

namespace isoloss::runlog {
namespace {

std::string JsonText(const std::string& text) {
  using Json = nlohmann::json;
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// Quotes a text as RFC 4180, sections 2.6 and 2.7, asks.
std::string CsvText(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

void Append(std::string& line, const std::string& value, ExportFormat format) {
  line += format == ExportFormat::kCsv ? CsvText(value) : JsonText(value);
}

template <std::integral T>
void Append(std::string& line, T value, ExportFormat /*format*/) {
  fmt::format_to(std::back_inserter(line), "{}", value);
}

void Append(std::string& line, double value, ExportFormat format) {
  if (std::isfinite(value)) {
    const size_t begin = line.size();
    fmt::format_to(std::back_inserter(line), "{}", value);
    // Without a point readers take it for an integer, which has no -0.
    if (line.find_first_of(".e", begin) == std::string::npos) line += ".0";
    return;
  }
  const char* name = std::isnan(value) ? "NaN"
                     : value > 0       ? "Infinity"
                                       : "-Infinity";
  Append(line, std::string(name), format);
}

/// Describes one axis of an array: its extent and the names of its places.
struct AxisPlaces {
  size_t size = 0;
  const std::vector<std::string>* names = nullptr;

  std::string Label(size_t place) const {
    return names != nullptr && place < names->size() ? (*names)[place]
                                                     : fmt::to_string(place);
  }
};

/// The first axis of a dataset is the group's rows.
struct Dataset {
  std::string name;
  std::string unit;
  std::vector<AxisPlaces> axes;
  std::function<void(std::string& line, size_t index)> append;

  size_t Width() const {
    size_t width = 1;
    for (const AxisPlaces& axis : axes) width *= axis.size;
    return width;
  }
};

/// Returns the names that a group has for an axis; null if it has none.
const std::vector<std::string>* NamesOf(const Group& group, const Axis& axis,
                                        const View& log) {
  for (const Column& column : group.columns) {
    if (column.role != Role::kLabels) continue;
    if (column.axes.front().offset == axis.offset) {
      return &log.Values<std::string>(column);
    }
  }
  return nullptr;
}

/// Returns a function that appends the value at an index. It reads the log, or
/// a copy of values that no vector of the log holds.
std::function<void(std::string&, size_t)> AppenderOf(const Column& column,
                                                     const View& log,
                                                     ExportFormat format) {
  using Appender = std::function<void(std::string&, size_t)>;
  return log.WithValues(
      column, [&]<typename T>(const std::vector<T>& values) -> Appender {
        if (column.IsRecorded()) {
          return [&values, format](std::string& line, size_t index) {
            Append(line, values[index], format);
          };
        }
        return [copy = values, format](std::string& line, size_t index) {
          Append(line, copy[index], format);
        };
      });
}

/// Returns the datasets of one group that the log has.
std::vector<Dataset> DatasetsOf(const Group& group, const View& log,
                                ExportFormat format) {
  const size_t rows = log.Count(group.columns.front());
  std::vector<Dataset> datasets;
  for (const Column& column : group.ColumnsIn(log)) {
    if (column.role == Role::kLabels) continue;
    // An empty column of a group with rows is one that the log lacks.
    if (log.Count(column) == 0 && (rows > 0 || !column.axes.empty())) continue;
    Dataset& dataset = datasets.emplace_back();
    dataset = {column.field.name,
               column.field.unit,
               {},
               AppenderOf(column, log, format)};
    for (const Axis& axis : column.axes) {
      dataset.axes.push_back(
          {static_cast<size_t>(log.Size(axis)), NamesOf(group, axis, log)});
    }
  }
  return datasets;
}

/// Returns "name.label.label[unit]" for the place `index` of a row.
std::string ColumnName(const Dataset& dataset, size_t index) {
  std::string suffix;
  for (size_t i = dataset.axes.size(); i-- > 0;) {
    const AxisPlaces& axis = dataset.axes[i];
    suffix = fmt::format(".{}{}", axis.Label(index % axis.size), suffix);
    index /= axis.size;
  }
  const std::string unit =
      dataset.unit.empty() ? "" : fmt::format("[{}]", dataset.unit);
  return CsvText(dataset.name + suffix + unit);
}

/// Returns the places that have a line each in CSV: those of the first axis, if
/// the schema names them. Null if a row is one line.
const AxisPlaces* NamedPlaces(const std::vector<Dataset>& datasets) {
  for (const Dataset& dataset : datasets) {
    if (!dataset.axes.empty() && dataset.axes[0].names != nullptr) {
      return &dataset.axes[0];
    }
  }
  return nullptr;
}

/// Returns `dataset` at one named place, that is without its first axis.
Dataset AtPlace(const Dataset& dataset) {
  Dataset rest = dataset;
  if (!rest.axes.empty()) rest.axes.erase(rest.axes.begin());
  return rest;
}

std::string CsvHead(const std::vector<Dataset>& datasets) {
  const bool named = NamedPlaces(datasets) != nullptr;
  std::vector<std::string> names;
  for (const Dataset& dataset : datasets) {
    const Dataset columns = named ? AtPlace(dataset) : dataset;
    for (size_t i = 0; i < columns.Width(); ++i) {
      names.push_back(ColumnName(columns, i));
    }
    if (named && names.size() == 1) names.push_back("name");
  }
  return fmt::format("{}\n", fmt::join(names, ","));
}

/// Appends all cells of `dataset` in row `row`, or those of one place there.
void AppendCells(const Dataset& dataset, size_t row,
                 const std::optional<size_t>& place, std::string& line) {
  size_t width = dataset.Width();
  size_t begin = row * width;
  if (place && !dataset.axes.empty()) {
    width /= dataset.axes[0].size;
    begin += *place * width;
  }
  for (size_t i = 0; i < width; ++i) {
    if (!line.empty()) line += ',';
    dataset.append(line, begin + i);
  }
}

/// Passes on the lines of a row; returns how many there are.
size_t WriteCsvRow(const std::vector<Dataset>& datasets, size_t row,
                   const std::function<void(std::string_view line)>& write) {
  const AxisPlaces* places = NamedPlaces(datasets);
  const size_t lines = places == nullptr ? 1 : places->size;
  for (size_t i = 0; i < lines; ++i) {
    std::optional<size_t> place;
    if (places != nullptr) place = i;
    std::string line;
    for (const Dataset& dataset : datasets) {
      AppendCells(dataset, row, place, line);
      if (place && &dataset == &datasets.front()) {
        line += ',' + CsvText(places->Label(i));
      }
    }
    write(line + '\n');
  }
  return lines;
}

/// Appends the values from `index` on, nested from axis `depth` on. Returns the
/// index after them.
size_t AppendNested(const Dataset& dataset, size_t depth, size_t index,
                    std::string& line) {
  if (depth == dataset.axes.size()) {
    dataset.append(line, index);
    return index + 1;
  }
  const AxisPlaces& axis = dataset.axes[depth];
  const bool named = axis.names != nullptr;
  line += named ? '{' : '[';
  for (size_t place = 0; place < axis.size; ++place) {
    if (place > 0) line += ',';
    if (named) line += JsonText(axis.Label(place)) + ":";
    index = AppendNested(dataset, depth + 1, index, line);
  }
  line += named ? '}' : ']';
  return index;
}

void AppendJsonRow(const std::vector<Dataset>& datasets, size_t row,
                   std::string& line) {
  for (const Dataset& dataset : datasets) {
    line += line.empty() ? '{' : ',';
    line += JsonText(dataset.name) + ":";
    AppendNested(dataset, 0, row * dataset.Width(), line);
  }
  line += "}\n";
}

template <typename Log>
std::vector<GroupRows> Groups(const Log& log) {
  std::vector<GroupRows> groups;
  for (const Group& group : SchemaOf<Log>()) {
    if (group.IsFile()) continue;
    groups.push_back({group.name, View(log).Count(group.columns.front())});
  }
  return groups;
}

/// `kind` of log is for messages: "run log".
const Group& GroupNamed(std::string_view name, const Schema& schema,
                        const char* kind) {
  std::vector<std::string> names;
  for (const Group& group : schema) {
    if (group.IsFile()) continue;
    if (group.name == name) return group;
    names.push_back(group.name);
  }
  ThrowError(ErrorKind::kConfig,
             "export: `{}` is no group of a {}. Groups: {}.{}", name, kind,
             fmt::join(names, ", "), DidYouMean(std::string(name), names));
}

size_t Export(const View& log, const Group& group, ExportFormat format,
              const std::function<void(std::string_view line)>& write) {
  const std::vector<Dataset> datasets = DatasetsOf(group, log, format);
  const size_t rows = log.Count(group.columns.front());
  if (format == ExportFormat::kCsv) write(CsvHead(datasets));
  size_t lines = 0;
  for (size_t row = 0; row < rows; ++row) {
    if (format == ExportFormat::kCsv) {
      lines += WriteCsvRow(datasets, row, write);
      continue;
    }
    std::string line;
    AppendJsonRow(datasets, row, line);
    write(line);
    ++lines;
  }
  return lines;
}

}  // namespace

std::vector<GroupRows> GroupsOf(const RunLog& log) { return Groups(log); }
std::vector<GroupRows> GroupsOf(const ProbeLog& log) { return Groups(log); }

size_t ExportGroup(const RunLog& log, std::string_view group,
                   ExportFormat format,
                   const std::function<void(std::string_view line)>& write) {
  return Export(View(log), GroupNamed(group, SchemaOf<RunLog>(), "run log"),
                format, write);
}

size_t ExportGroup(const ProbeLog& log, std::string_view group,
                   ExportFormat format,
                   const std::function<void(std::string_view line)>& write) {
  return Export(View(log), GroupNamed(group, SchemaOf<ProbeLog>(), "probe log"),
                format, write);
}

}  // namespace isoloss::runlog
