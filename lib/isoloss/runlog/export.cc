#include "isoloss/runlog/export.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <concepts>
#include <initializer_list>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/base/nearest_name.h"
#include "isoloss/runlog/probe_schema.h"
#include "isoloss/runlog/schema.h"

namespace isoloss::runlog {
namespace {

std::string JsonText(const std::string& text) {
  using Json = nlohmann::json;
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// RFC 4180, section 2.6 and 2.7.
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
    // Else readers take it for an integer, which has no -0.
    if (line.find_first_of(".e", begin) == std::string::npos) line += ".0";
    return;
  }
  const char* name = std::isnan(value) ? "NaN"
                     : value > 0       ? "Infinity"
                                       : "-Infinity";
  Append(line, std::string(name), format);
}

/// One axis of an array: its extent and what its places are called.
struct AxisPlaces {
  size_t size = 0;
  const std::vector<std::string>* names = nullptr;

  std::string Label(size_t place) const {
    return names != nullptr && place < names->size() ? (*names)[place]
                                                     : fmt::to_string(place);
  }
};

/// A dataset whose first axis is the group's rows.
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

/// Visitor of the schema that collects the datasets of one group.
class Collector {
 public:
  Collector(std::string_view group, ExportFormat format)
      : wanted_(group), format_(format) {}

  void Version(const Field& /*field*/, int64_t /*version*/) {}
  void LayoutVersion(const Field& /*field*/, int64_t /*newest*/) {}
  template <typename T>
  void Attribute(const Field& /*field*/, const T& /*value*/) {}

  void Group(const char* name, const char* /*description*/, int64_t /*since*/) {
    inside_ = wanted_ == name;
    known_.push_back({name, 0});
    labels_.clear();
    first_ = true;
  }

  template <typename T>
  void Column(const Field& field, const std::vector<T>& values) {
    CountRows(values.size());
    Add(field, values, {});
  }

  template <typename T>
  void RequiredColumn(const Field& field, const std::vector<T>& values) {
    Column(field, values);
  }

  template <typename T>
  void Array(const Field& field, const std::vector<T>& values,
             std::initializer_list<Axis<const int64_t>> axes) {
    std::vector<AxisPlaces> places;
    for (const auto& axis : axes) {
      const auto names = labels_.find(axis.name);
      places.push_back({static_cast<size_t>(axis.size),
                        names == labels_.end() ? nullptr : names->second});
    }
    if (!values.empty()) Add(field, values, std::move(places));
  }

  void Labels(const Field& /*field*/, const std::vector<std::string>& names,
              const Axis<const int64_t>& axis) {
    labels_[axis.name] = &names;
  }

  void Count(const Field& field, int64_t rows) {
    CountRows(static_cast<size_t>(rows));
    if (!inside_) return;
    datasets_.push_back({field.name,
                         field.unit,
                         {},
                         [format = format_](std::string& line, size_t row) {
                           Append(line, static_cast<int64_t>(row), format);
                         }});
  }

  template <typename T>
  void Member(const Field& field, const std::vector<Event>& rows,
              T Event::*member) {
    CountRows(rows.size());
    if (!inside_) return;
    datasets_.push_back(
        {field.name,
         field.unit,
         {},
         [&rows, member, format = format_](std::string& line, size_t row) {
           Append(line, rows[row].*member, format);
         }});
  }

  const std::vector<GroupRows>& known() const { return known_; }
  const std::vector<Dataset>& datasets() const { return datasets_; }

 private:
  /// The first dataset of a group is as long as the group.
  void CountRows(size_t rows) {
    if (std::exchange(first_, false)) known_.back().rows = rows;
  }

  template <typename T>
  void Add(const Field& field, const std::vector<T>& values,
           std::vector<AxisPlaces> axes) {
    if (!inside_) return;
    // An empty column of a group with rows is one that the log lacks.
    if (values.empty() && known_.back().rows > 0) return;
    datasets_.push_back(
        {field.name, field.unit, std::move(axes),
         [&values, format = format_](std::string& line, size_t index) {
           Append(line, values[index], format);
         }});
  }

  std::string_view wanted_;
  ExportFormat format_;
  bool inside_ = false;
  bool first_ = false;
  std::map<std::string, const std::vector<std::string>*> labels_;
  std::vector<GroupRows> known_;
  std::vector<Dataset> datasets_;
};

/// "name.label.label[unit]" for the place `index` of a row.
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

/// The places that get a line each in CSV: those of the first axis, if the
/// schema names them. Null: a row is one line.
const AxisPlaces* NamedPlaces(const std::vector<Dataset>& datasets) {
  for (const Dataset& dataset : datasets) {
    if (!dataset.axes.empty() && dataset.axes[0].names != nullptr) {
      return &dataset.axes[0];
    }
  }
  return nullptr;
}

/// `dataset` at one named place: without its first axis.
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

/// All cells of `dataset` in row `row`, or of one place there.
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

/// Passes the lines of a row on; returns how many.
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

/// The values from `index` on, nested from axis `depth` on. Returns the index
/// behind them.
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

void Walk(Collector& collector, const RunLog& log) {
  VisitRunLog(collector, log);
}

void Walk(Collector& collector, const ProbeLog& log) {
  VisitProbeLog(collector, log);
}

template <typename Log>
std::vector<GroupRows> Groups(const Log& log) {
  Collector collector("", ExportFormat::kCsv);
  Walk(collector, log);
  return collector.known();
}

/// `kind` of log is for messages: "run log".
template <typename Log>
size_t Export(const Log& log, const char* kind, std::string_view group,
              ExportFormat format,
              const std::function<void(std::string_view line)>& write) {
  Collector collector(group, format);
  Walk(collector, log);
  size_t rows = 0;
  std::vector<std::string> names;
  for (const GroupRows& known : collector.known()) {
    if (known.name == group) rows = known.rows;
    names.push_back(known.name);
  }
  if (collector.datasets().empty()) {
    ThrowError(ErrorKind::kConfig,
               "export: `{}` is no group of a {}. Groups: {}.{}", group, kind,
               fmt::join(names, ", "), DidYouMean(std::string(group), names));
  }
  if (format == ExportFormat::kCsv) write(CsvHead(collector.datasets()));
  size_t lines = 0;
  for (size_t row = 0; row < rows; ++row) {
    if (format == ExportFormat::kCsv) {
      lines += WriteCsvRow(collector.datasets(), row, write);
      continue;
    }
    std::string line;
    AppendJsonRow(collector.datasets(), row, line);
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
  return Export(log, "run log", group, format, write);
}

size_t ExportGroup(const ProbeLog& log, std::string_view group,
                   ExportFormat format,
                   const std::function<void(std::string_view line)>& write) {
  return Export(log, "probe log", group, format, write);
}

}  // namespace isoloss::runlog
