#include "isoloss/report/foreign_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "isoloss/base/printable.h"
#include "isoloss/foreign/findings.h"

namespace isoloss::report {
namespace {

using document::Json;
using document::PutInteger;

using foreign::ForeignRun;
using foreign::Series;

constexpr size_t kNameWidth = 19;

/// A long name has a line of its own, since names of one log begin and end
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

/// What the judge takes it for: of several losses one counts.
std::string_view MeaningOf(const ForeignRun& run, const Series& series) {
  const bool counts = run.Main(series.quantity) == &series;
  return counts ? foreign::QuantityName(series.quantity) : "";
}

std::string DigitsText(const foreign::Digits& digits) {
  if (digits.exact()) return "all";
  if (digits.scientific) return fmt::format("{} digits", digits.significant);
  return fmt::format("{} decimals", digits.decimals);
}

std::string SeriesRow(const ForeignRun& run, const Series& series) {
  const foreign::Spacing spacing = foreign::SpacingOf(series.step);
  return fmt::format(
      "  {:<19} {:<17} {:>6} {:>6} {:>6} {:>5}  {}\n", NameCell(series.name),
      MeaningOf(run, series), series.step.size(), series.step.front(),
      series.step.back(), spacing.stride, DigitsText(series.digits));
}

}  // namespace

std::string RenderForeignLog(const std::string& file,
                             const std::vector<ForeignRun>& runs) {
  std::string text = fmt::format("{}\n", Printable(file));
  for (const ForeignRun& run : runs) {
    text += fmt::format("\n{}format {}, steps count {}s{}\n",
                        run.name.empty() ? "" : Printable(run.name) + ": ",
                        run.format, run.step_unit,
                        run.step_name.empty()
                            ? ""
                            : fmt::format(" (`{}`)", Printable(run.step_name)));
    if (run.seed) text += fmt::format("seed {}\n", *run.seed);
    text += fmt::format("  {:<19} {:<17} {:>6} {:>6} {:>6} {:>5}  {}\n",
                        "series", "counts as", "values", "first", "last",
                        "every", "written with");
    for (const Series& series : run.series) text += SeriesRow(run, series);
    for (const std::string& finding : foreign::FindingsOf(run)) {
      text += fmt::format("- {}\n", Printable(finding));
    }
  }
  return text;
}

Json ForeignLogJson(const std::string& file,
                    const std::vector<ForeignRun>& runs) {
  Json json{{"file", Printable(file)}, {"runs", Json::array()}};
  for (const ForeignRun& run : runs) {
    Json one{{"name", Printable(run.name)},
             {"format", run.format},
             {"step_unit", run.step_unit},
             {"step_base", run.step_base}};
    PutInteger(one, "seed", run.seed);
    one["findings"] = Json::array();
    for (const std::string& finding : foreign::FindingsOf(run)) {
      one["findings"].push_back(Printable(finding));
    }
    one["series"] = Json::array();
    for (const Series& series : run.series) {
      Json values = Json::array();
      for (const double value : series.value) {
        values.push_back(std::isfinite(value) ? Json(value)
                                              : Json(std::isnan(value) ? "nan"
                                                     : value > 0       ? "inf"
                                                                 : "-inf"));
      }
      one["series"].push_back(
          {{"name", Printable(series.name)},
           {"quantity", foreign::QuantityName(series.quantity)},
           {"averaging", foreign::AveragingText(series.averaging)},
           {"decimals", series.digits.decimals},
           {"significant", series.digits.significant},
           {"scientific", series.digits.scientific},
           {"exact", series.digits.exact()},
           {"repeated", series.repeated},
           {"copies", series.copies},
           {"step", series.step},
           {"value", std::move(values)}});
    }
    json["runs"].push_back(std::move(one));
  }
  return json;
}

}  // namespace isoloss::report
