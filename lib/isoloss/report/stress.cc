#include "isoloss/report/stress.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/document/json.h"
#include "isoloss/document/svg.h"
#include "isoloss/document/svg_axes.h"

namespace isoloss::report {
namespace {

using document::IntervalJson;
using document::Json;
using document::SvgParagraph;
using document::SvgPicture;
using document::SvgText;
using document::SvgTitle;
namespace colour = document::colour;

using stress::Separation;
using stress::StressMap;
using stress::StressResult;

constexpr int64_t kStressSchemaVersion = 1;
constexpr int kStressCellWidth = 124;
constexpr int kStressCellHeight = 40;
constexpr int kStressNames = 170;
constexpr int kStressTop = 96;

/// "2/8": 2 of 8 runs diverged.
std::string DivergedText(const StressResult& result) {
  return fmt::format("{}/{}", result.diverged, result.seeds);
}
std::string GapText(const StressMap& map, const StressResult& result) {
  if (result.arm == map.baseline) return "baseline";
  return result.gap ? fmt::format("{:+.4f}", *result.gap) : "no gap";
}
std::string IntervalOfGap(const StressResult& result) {
  if (!result.gap) return "";
  return fmt::format("[{:+.4f}, {:+.4f}]", result.gap_lower, result.gap_upper);
}

std::string SeparationText(const Separation& separation,
                           const std::string& reference) {
  if (!separation.separated) {
    return fmt::format(
        "{} is not told apart from {} in any mode (least p "
        "{:.2g}).",
        separation.arm, reference, separation.p);
  }
  return fmt::format(
      "{} is told apart from {} by its {} in mode {} (p {:.2g}).",
      separation.arm, reference, separation.by, separation.mode, separation.p);
}

std::string Conclusion(const StressMap& map) {
  if (map.SeparatesAny()) return "";
  return fmt::format(
      "These modes do not tell the recipes that are known to be bad apart from "
      "{}.",
      map.reference);
}

std::string_view StressColour(const StressResult& result) {
  if (result.diverged * 2 > result.seeds) return "#f28b82";
  if (result.diverged > 0) return "#f6ad6b";
  if (result.gap && result.gap_lower > 0) return "#fff3a8";
  if (result.gap && result.gap_upper < 0) return "#d2e3fc";
  return "#e6f4ea";
}

Json SeparationJson(const Separation& separation) {
  Json json{{"arm", separation.arm},
            {"separated", separation.separated},
            {"p", separation.p},
            {"by", nullptr},
            {"mode", nullptr}};
  if (!separation.mode.empty()) {
    json["by"] = separation.by;
    json["mode"] = separation.mode;
  }
  return json;
}

Json ResultJson(const StressResult& result) {
  const double rate =
      static_cast<double>(result.diverged) / static_cast<double>(result.seeds);
  Json json{{"mode", result.mode},       {"arm", result.arm},
            {"seeds", result.seeds},     {"diverged", result.diverged},
            {"diverged_share", nullptr}, {"gap_seeds", result.gap_seeds},
            {"gap_nats", nullptr},       {"p_diverges", result.p_diverges},
            {"p_worse", result.p_worse}};
  if (result.seeds > 0) {
    json["diverged_share"] =
        IntervalJson(rate, result.diverged_lower, result.diverged_upper);
  }
  if (result.gap) {
    json["gap_nats"] =
        IntervalJson(*result.gap, result.gap_lower, result.gap_upper);
  }
  return json;
}

/// Names of the arms over their columns, long ones on two lines, at the last
/// '_' that fits.
std::string ArmNamesSvg(const StressMap& map) {
  std::string svg;
  double x = kStressNames + kStressCellWidth / 2.0;
  for (const std::string& name : map.arms) {
    constexpr const char* kBoldText =
        "text-anchor=\"middle\" font-weight=\"bold\"";
    const size_t cut = name.size() > 15 ? name.rfind('_', 15) : name.npos;
    svg += SvgText(x, kStressTop - 24, name.substr(0, cut), kBoldText);
    if (cut != name.npos) {
      svg += SvgText(x, kStressTop - 10, name.substr(cut), kBoldText);
    }
    x += kStressCellWidth;
  }
  return svg;
}

std::string ModeRowSvg(const StressMap& map, size_t mode) {
  const int y = kStressTop + static_cast<int>(mode) * kStressCellHeight;
  std::string svg = SvgText(kStressNames - 10, y + kStressCellHeight / 2.0 + 4,
                            map.modes[mode], "text-anchor=\"end\"");
  int x = kStressNames;
  for (size_t arm = 0; arm < map.arms.size(); ++arm) {
    const StressResult& result = map.At(mode, arm);
    svg += fmt::format(
        "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"/>\n", x,
        y, kStressCellWidth - 3, kStressCellHeight - 3, StressColour(result));
    svg += SvgText(x + kStressCellWidth / 2.0, y + 16,
                   DivergedText(result) + "  " + GapText(map, result),
                   "text-anchor=\"middle\"");
    svg += SvgText(x + kStressCellWidth / 2.0, y + 30, IntervalOfGap(result),
                   fmt::format("text-anchor=\"middle\" font-size=\"10\" "
                               "fill=\"{}\"",
                               colour::kGrey));
    x += kStressCellWidth;
  }
  return svg;
}

/// What follows below the map, a sentence each; the conclusion last but notes.
std::vector<std::string> RemarksOn(const StressMap& map) {
  std::vector<std::string> remarks;
  for (const Separation& separation : map.separations) {
    remarks.push_back(SeparationText(separation, map.reference));
  }
  const std::string conclusion = Conclusion(map);
  if (!conclusion.empty()) remarks.push_back(conclusion);
  remarks.insert(remarks.end(), map.notes.begin(), map.notes.end());
  return remarks;
}

}  // namespace

std::string RenderStress(const StressMap& map) {
  size_t width = 16;
  for (const std::string& arm : map.arms) width = std::max(width, arm.size());
  std::string text = fmt::format(
      "Diverged runs, and mean gap to {} in nats with its 95 % interval\n",
      map.baseline);
  for (size_t mode = 0; mode < map.modes.size(); ++mode) {
    text += map.modes[mode] + "\n";
    for (size_t arm = 0; arm < map.arms.size(); ++arm) {
      const StressResult& result = map.At(mode, arm);
      text += fmt::format("  {:<{}} {:>6}  {:>9} {}\n", result.arm, width,
                          DivergedText(result), GapText(map, result),
                          IntervalOfGap(result));
    }
  }
  text += "\n";
  for (const std::string& remark : RemarksOn(map)) text += remark + "\n";
  return text;
}

std::string RenderStressJson(const StressMap& map) {
  Json json{{"schema_version", kStressSchemaVersion},
            {"experiment", map.experiment},
            {"baseline", map.baseline},
            {"reference", map.reference},
            {"confidence", stress::kConfidence},
            {"separates_any", map.SeparatesAny()},
            {"results", Json::array()},
            {"separations", Json::array()},
            {"notes", map.notes}};
  for (const StressResult& result : map.results) {
    json["results"].push_back(ResultJson(result));
  }
  for (const Separation& separation : map.separations) {
    json["separations"].push_back(SeparationJson(separation));
  }
  return json.dump(2) + "\n";
}

std::string RenderStressSvg(const StressMap& map) {
  const int width = std::max(
      700,
      kStressNames + static_cast<int>(map.arms.size()) * kStressCellWidth + 16);
  std::string body = SvgTitle(
      16, 24,
      fmt::format("Diverged runs, and gap to {} in nats [95 % interval]",
                  map.baseline));
  body += SvgText(16, 44,
                  "red: most runs diverged; orange: some; yellow: the gap lies "
                  "above 0; blue: below; green: neither",
                  fmt::format("fill=\"{}\"", colour::kGrey));
  body += ArmNamesSvg(map);
  for (size_t mode = 0; mode < map.modes.size(); ++mode) {
    body += ModeRowSvg(map, mode);
  }
  double y = kStressTop + 24.0 +
             static_cast<double>(map.modes.size()) * kStressCellHeight;
  for (const std::string& remark : RemarksOn(map)) {
    body +=
        SvgParagraph(16, y, width - 32, remark,
                     remark == Conclusion(map) ? "font-weight=\"bold\"" : "");
  }
  return SvgPicture(width, static_cast<int>(y) + 4, body);
}

}  // namespace isoloss::report
