#include "isoloss/report/foreign_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "isoloss/base/printable.h"
#include "isoloss/foreign/findings.h"

namespace isoloss::report {
namespace {

using document::Document;

using foreign::ForeignRun;
using foreign::Series;

constexpr size_t kNameWidth = 19;

/// Gives a long name a line of its own, since names of one log begin and end
/// alike.
std::string NameCell(const std::string& name) {
  std::string shown = Printable(name);
  if (shown.size() <= kNameWidth) return shown;
  constexpr size_t kLine = 76;
  constexpr size_t kHalf = kLine / 2 - 1;
  if (shown.size() > kLine) {
    shown = shown.substr(0, kHalf) + ".." + shown.substr(shown.size() - kHalf);
  }
  return fmt::format("{}\n  {:<{}}", shown, "", kNameWidth);
}

std::string DigitsText(const foreign::Digits& digits) {
  if (digits.exact()) return "all";
  if (digits.scientific) return fmt::format("{} digits", digits.significant);
  return fmt::format("{} decimals", digits.decimals);
}

/// Returns the values; a value that is not finite is written as its name.
document::Value ValuesOf(const Series& series) {
  if (std::ranges::all_of(series.value,
                          [](double value) { return std::isfinite(value); })) {
    return series.value;
  }
  document::Value::List values;
  for (const double value : series.value) {
    values.push_back(std::isfinite(value) ? document::Value(value)
                     : std::isnan(value)  ? "nan"
                     : value > 0          ? "inf"
                                          : "-inf");
  }
  return values;
}

Document SeriesDocument(const ForeignRun& run, const Series& series,
                        bool with_values) {
  Document document;
  document.Put("name", Printable(series.name));
  const std::string_view quantity = foreign::QuantityName(series.quantity);
  // The judge takes one series of each quantity.
  const bool counts = run.Main(series.quantity) == &series;
  document.Put("quantity", quantity);
  document.Put("counts", counts && !quantity.empty());
  document.Put("averaging", foreign::AveragingText(series.averaging));
  document.Put("decimals", series.digits.decimals);
  document.Put("significant", series.digits.significant);
  document.Put("scientific", series.digits.scientific);
  document.Put("exact", series.digits.exact());
  document.Put("repeated", series.repeated);
  document.Put("copies", series.copies);
  if (with_values) {
    document.Put("step", series.step);
    document.Put("value", ValuesOf(series));
  }
  const foreign::Spacing spacing = foreign::SpacingOf(series.step);
  document.Say(fmt::format(
      "  {:<19} {:<17} {:>6} {:>6} {:>6} {:>5}  {}", NameCell(series.name),
      counts ? quantity : "", series.step.size(), series.step.front(),
      series.step.back(), spacing.stride, DigitsText(series.digits)));
  return document;
}

Document RunDocument(const ForeignRun& run, bool with_values) {
  Document document;
  document.Put("name", Printable(run.name));
  document.Put("format", run.format);
  document.Put("step_unit", run.step_unit);
  document.Put("step_base", run.step_base);
  document.Put("seed", run.seed);
  document.Say("");
  document.Say(
      fmt::format("{}format {}, steps count {}s{}",
                  run.name.empty() ? "" : Printable(run.name) + ": ",
                  run.format, run.step_unit,
                  run.step_name.empty()
                      ? ""
                      : fmt::format(" (`{}`)", Printable(run.step_name))));
  if (run.seed) document.Say(fmt::format("seed {}", *run.seed));
  document.Say(fmt::format("  {:<19} {:<17} {:>6} {:>6} {:>6} {:>5}  {}",
                           "series", "counts as", "values", "first", "last",
                           "every", "written with"));
  document.PutEach("series", run.series, [&](const Series& series) {
    return SeriesDocument(run, series, with_values);
  });
  std::vector<std::string> findings;
  for (const std::string& finding : foreign::FindingsOf(run)) {
    findings.push_back(Printable(finding));
    document.Say("- " + findings.back());
  }
  document.Put("findings", findings);
  return document;
}

}  // namespace

Document DocumentOf(const std::string& file,
                    const std::vector<ForeignRun>& runs, bool with_values) {
  Document document;
  document.Put("file", Printable(file));
  document.Say(Printable(file));
  document.PutEach("runs", runs, [&](const ForeignRun& run) {
    return RunDocument(run, with_values);
  });
  return document;
}

}  // namespace isoloss::report
