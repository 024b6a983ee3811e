#include "isoloss/report/stress.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "isoloss/report/json_numbers.h"
#include "isoloss/report/svg.h"

namespace isoloss::report {
namespace {

using stress::Separation;
using stress::StressCell;
using stress::StressMap;

constexpr int64_t kStressSchemaVersion = 1;
constexpr int kStressCellWidth = 124;
constexpr int kStressCellHeight = 40;
constexpr int kStressNames = 170;
constexpr int kStressTop = 96;

/// "2/8 +0.0123": diverged runs and the gap.
std::string DivergedText(const StressCell& cell) {
  return fmt::format("{}/{}", cell.diverged, cell.seeds);
}
std::string GapText(const StressMap& map, const StressCell& cell) {
  if (cell.arm == map.baseline) return "baseline";
  return cell.gap ? fmt::format("{:+.4f}", *cell.gap) : "no gap";
}
std::string IntervalOfGap(const StressCell& cell) {
  if (!cell.gap) return "";
  return fmt::format("[{:+.4f}, {:+.4f}]", cell.gap_lower, cell.gap_upper);
}

std::string SeparationText(const Separation& separation,
                           const std::string& reference) {
  if (!separation.separated) {
    return fmt::format("{} is not told from {} anywhere (least p {:.2g}).",
                       separation.arm, reference, separation.p);
  }
  return fmt::format("{} is told from {} by its {} under {} (p {:.2g}).",
                     separation.arm, reference, separation.by,
                     separation.stress, separation.p);
}

std::string Conclusion(const StressMap& map) {
  if (map.SeparatesAny()) return "";
  return fmt::format(
      "This suite does not separate the recipes that are known to be bad from "
      "{}.",
      map.reference);
}

std::string_view StressColour(const StressCell& cell) {
  if (cell.diverged * 2 > cell.seeds) return "#f28b82";
  if (cell.diverged > 0) return "#f6ad6b";
  if (cell.gap && cell.gap_lower > 0) return "#fff3a8";
  if (cell.gap && cell.gap_upper < 0) return "#d2e3fc";
  return "#e6f4ea";
}

Json SeparationJson(const Separation& separation) {
  Json json{{"arm", separation.arm},
            {"separated", separation.separated},
            {"p", separation.p},
            {"by", nullptr},
            {"stress", nullptr}};
  if (!separation.stress.empty()) {
    json["by"] = separation.by;
    json["stress"] = separation.stress;
  }
  return json;
}

}  // namespace

std::string RenderStress(const StressMap& map) {
  size_t width = 16;
  for (const std::string& arm : map.arms) width = std::max(width, arm.size());
  std::string text = fmt::format(
      "Diverged runs, and mean gap to {} in nats with its 95 % interval\n",
      map.baseline);
  for (size_t stress = 0; stress < map.stresses.size(); ++stress) {
    text += map.stresses[stress] + "\n";
    for (size_t arm = 0; arm < map.arms.size(); ++arm) {
      const StressCell& cell = map.At(stress, arm);
      text += fmt::format("  {:<{}} {:>6}  {:>9} {}\n", cell.arm, width,
                          DivergedText(cell), GapText(map, cell),
                          IntervalOfGap(cell));
    }
  }
  text += "\n";
  for (const Separation& separation : map.separations) {
    text += SeparationText(separation, map.reference) + "\n";
  }
  const std::string conclusion = Conclusion(map);
  if (!conclusion.empty()) text += conclusion + "\n";
  for (const std::string& note : map.notes) text += note + "\n";
  return text;
}

std::string RenderStressJson(const StressMap& map) {
  Json json{{"schema_version", kStressSchemaVersion},
            {"baseline", map.baseline},
            {"reference", map.reference},
            {"separates_any", map.SeparatesAny()},
            {"cells", Json::array()},
            {"separations", Json::array()},
            {"notes", map.notes}};
  for (const StressCell& cell : map.cells) {
    Json entry{{"stress", cell.stress},
               {"arm", cell.arm},
               {"seeds", cell.seeds},
               {"diverged", cell.diverged},
               {"diverged_lower_95", cell.diverged_lower},
               {"diverged_upper_95", cell.diverged_upper},
               {"gap_seeds", cell.gap_seeds}};
    PutNumber(entry, "gap_nats", cell.gap);
    const bool has_gap = cell.gap.has_value();
    PutNumber(entry, "gap_lower_95",
              has_gap ? std::optional(cell.gap_lower) : std::nullopt);
    PutNumber(entry, "gap_upper_95",
              has_gap ? std::optional(cell.gap_upper) : std::nullopt);
    entry["p_diverges"] = cell.p_diverges;
    entry["p_worse"] = cell.p_worse;
    json["cells"].push_back(std::move(entry));
  }
  for (const Separation& separation : map.separations) {
    json["separations"].push_back(SeparationJson(separation));
  }
  return json.dump(2) + "\n";
}

std::string RenderStressSvg(const StressMap& map) {
  std::string body = SvgText(
      16, 24,
      fmt::format("Diverged runs, and gap to {} in nats [95 % interval]",
                  map.baseline),
      "font-weight=\"bold\" font-size=\"14\"");
  body += SvgText(16, 44,
                  "red: most runs diverged; orange: some; yellow: the gap lies "
                  "above 0; blue: below; green: neither",
                  "fill=\"#5f6368\"");
  for (size_t arm = 0; arm < map.arms.size(); ++arm) {
    const int x = kStressNames + static_cast<int>(arm) * kStressCellWidth;
    // Long names on two lines, at the last '_' that fits.
    const std::string& name = map.arms[arm];
    const size_t cut = name.size() > 15 ? name.rfind('_', 15) : name.npos;
    const std::string first = name.substr(0, cut);
    body += SvgText(x + kStressCellWidth / 2, kStressTop - 24, first,
                    "text-anchor=\"middle\" font-weight=\"bold\"");
    if (cut != name.npos) {
      body +=
          SvgText(x + kStressCellWidth / 2, kStressTop - 10, name.substr(cut),
                  "text-anchor=\"middle\" font-weight=\"bold\"");
    }
  }
  for (size_t stress = 0; stress < map.stresses.size(); ++stress) {
    const int y = kStressTop + static_cast<int>(stress) * kStressCellHeight;
    body += SvgText(kStressNames - 10, y + kStressCellHeight / 2 + 4,
                    map.stresses[stress], "text-anchor=\"end\"");
    for (size_t arm = 0; arm < map.arms.size(); ++arm) {
      const StressCell& cell = map.At(stress, arm);
      const int x = kStressNames + static_cast<int>(arm) * kStressCellWidth;
      body += fmt::format(
          "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"/>\n",
          x, y, kStressCellWidth - 3, kStressCellHeight - 3,
          StressColour(cell));
      body += SvgText(x + kStressCellWidth / 2, y + 16,
                      DivergedText(cell) + "  " + GapText(map, cell),
                      "text-anchor=\"middle\"");
      body += SvgText(x + kStressCellWidth / 2, y + 30, IntervalOfGap(cell),
                      "text-anchor=\"middle\" font-size=\"10\" "
                      "fill=\"#5f6368\"");
    }
  }
  int y = kStressTop +
          static_cast<int>(map.stresses.size()) * kStressCellHeight + 24;
  for (const Separation& separation : map.separations) {
    body += SvgText(16, y, SeparationText(separation, map.reference));
    y += 18;
  }
  const std::string conclusion = Conclusion(map);
  if (!conclusion.empty()) {
    body += SvgText(16, y, conclusion, "font-weight=\"bold\"");
    y += 18;
  }
  for (const std::string& note : map.notes) {
    body += SvgText(16, y, note);
    y += 18;
  }
  const int width = std::max(
      700,
      kStressNames + static_cast<int>(map.arms.size()) * kStressCellWidth + 16);
  return SvgPicture(width, y + 4, body);
}

}  // namespace isoloss::report
