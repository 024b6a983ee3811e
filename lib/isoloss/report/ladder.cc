#include "isoloss/report/ladder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "isoloss/document/json.h"
#include "isoloss/scaling/size_text.h"

namespace isoloss::report {
namespace {

using document::Json;
using document::PutNumber;

using scaling::ArmStatement;
using scaling::GapFit;
using scaling::GapInterval;
using scaling::LadderStatement;
using scaling::SizeStatement;

constexpr int64_t kLadderSchemaVersion = 1;

/// A gap beyond it is no prediction: a bigram's loss is less than that.
constexpr double kLargestGap = 10;  // nats

std::string GapNumber(double nats) {
  if (std::fabs(nats) > kLargestGap) {
    return fmt::format("{} {:g}", nats > 0 ? "above" : "below",
                       std::copysign(kLargestGap, nats));
  }
  return fmt::format("{:+.4f}", nats);
}

std::string IntervalText(const GapInterval& interval) {
  return fmt::format("{} [{}, {}]", GapNumber(interval.estimate),
                     GapNumber(interval.lower), GapNumber(interval.upper));
}

/// What to do about a size that is not settled. Doubts are named elsewhere.
std::string RemedyText(const SizeStatement& size, bool doubts) {
  if (size.verdict != scaling::ScaleVerdict::kInconclusive) return "";
  const bool below = std::ranges::all_of(size.fits, [&](const GapFit& fit) {
    return fit.predicted.upper < size.margin_nats;
  });
  if (below) {
    return "It lies below the margin by all laws, but the doubts below keep it "
           "from being safe.";
  }
  if (!size.seeds_factor) {
    return "More seeds of these sizes would not settle it: train larger sizes.";
  }
  return fmt::format(
      "If the means stay{}, {:g} times the seeds ({:g} times the computation) "
      "would put the gap below the margin. Larger models would do so for less "
      "computation.",
      doubts ? " and no doubt is left" : "", *size.seeds_factor,
      *size.seeds_factor);
}

/// What the interval of a form rests on.
std::string FitNote(const GapFit& fit) {
  std::string note;
  if (fit.two_terms && !fit.exponents_fitted) {
    note += "  (widest of exponents from 0.2 to 0.5)";
  }
  if (!fit.fit_p) note += "  (fit not tried)";
  if (fit.Misfits()) note += "  (does not fit)";
  return note;
}

std::string SizeLines(const SizeStatement& size, bool doubts) {
  std::string text = fmt::format(
      "  {}: {} (margin {:.4f} nats)\n", size.name,
      size.verdict == scaling::ScaleVerdict::kInconclusive
          ? "INCONCLUSIVE"
          : (size.verdict == scaling::ScaleVerdict::kSafe ? "safe" : "unsafe"),
      size.margin_nats);
  for (const GapFit& fit : size.fits) {
    text += fmt::format("    {:<15} {}{}\n", scaling::FormText(fit.form),
                        IntervalText(fit.predicted), FitNote(fit));
  }
  const std::string remedy = RemedyText(size, doubts);
  return remedy.empty() ? text : text + "    " + remedy + "\n";
}

std::string ArmLines(const ArmStatement& arm, double confidence) {
  std::string text =
      fmt::format("{} ({}, recipe {})\n", arm.arm.name,
                  scaling::ArmRoleName(arm.arm.role), arm.arm.recipe);
  for (const scaling::GapCell& cell : arm.arm.cells) {
    text +=
        fmt::format("  {:<12} {:>3} seeds  {}\n", cell.name, cell.gaps.size(),
                    IntervalText(scaling::MeasuredGap(cell, confidence)));
  }
  if (arm.slope) {
    text += fmt::format(
        "  slope, nats for ten times the operations: {}{}\n",
        IntervalText(*arm.slope),
        arm.slope->lower <= 0 && 0 <= arm.slope->upper ? "" : "  (not 0)");
  }
  for (const scaling::HeldOutRung& rung : arm.held_out) {
    text += fmt::format(
        "  {} held out, by the {}: measured {:+.4f}, predicted {}: {}\n",
        rung.cell, scaling::FormText(rung.form), rung.measured,
        IntervalText(rung.interval), rung.inside ? "inside" : "OUTSIDE");
  }
  for (const SizeStatement& size : arm.sizes) {
    text += SizeLines(size, !arm.doubts.empty());
  }
  for (const std::string& doubt : arm.doubts) {
    text += "  Not safe: " + doubt + "\n";
  }
  return text;
}

Json IntervalJson(const GapInterval& interval) {
  return document::IntervalJson(interval.estimate, interval.lower,
                                interval.upper);
}

Json FitJson(const GapFit& fit) {
  Json json{{"form", scaling::FormName(fit.form)},
            {"gap_nats", IntervalJson(fit.predicted)}};
  PutNumber(json, "fit_p", fit.fit_p);
  if (fit.power_law) {
    json["of_parameters"] = fit.power_law->of_parameters;
    json["of_tokens"] = fit.power_law->of_tokens;
  }
  if (fit.two_terms) {
    json["alpha"] = fit.two_terms->alpha;
    json["beta"] = fit.two_terms->beta;
    json["exponents_fitted"] = fit.exponents_fitted;
  }
  if (fit.form == scaling::Form::kEffectiveSize) {
    PutNumber(json, "parameter_factor", fit.parameter_factor);
    PutNumber(json, "data_factor", fit.data_factor);
  }
  return json;
}

Json ArmJson(const ArmStatement& arm) {
  Json json{{"name", arm.arm.name},
            {"recipe", arm.arm.recipe},
            {"role", scaling::ArmRoleName(arm.arm.role)},
            {"cells", Json::array()},
            {"held_out", Json::array()},
            {"sizes", Json::array()},
            {"doubts", arm.doubts}};
  for (const scaling::GapCell& cell : arm.arm.cells) {
    json["cells"].push_back({{"name", cell.name},
                             {"parameters", cell.size.parameters},
                             {"tokens", cell.size.tokens},
                             {"gaps_nats", cell.gaps},
                             {"baseline_nats", cell.baseline}});
  }
  json["slope_nats_a_tenfold"] =
      arm.slope ? IntervalJson(*arm.slope) : Json(nullptr);
  for (const scaling::HeldOutRung& rung : arm.held_out) {
    json["held_out"].push_back({{"form", scaling::FormName(rung.form)},
                                {"cell", rung.cell},
                                {"measured_nats", rung.measured},
                                {"predicted_nats", IntervalJson(rung.interval)},
                                {"inside", rung.inside}});
  }
  for (const SizeStatement& size : arm.sizes) {
    Json fits = Json::array();
    for (const GapFit& fit : size.fits) fits.push_back(FitJson(fit));
    Json entry{{"name", size.name},
               {"parameters", size.size.parameters},
               {"tokens", size.size.tokens},
               {"margin_nats", size.margin_nats},
               {"verdict", scaling::ScaleVerdictName(size.verdict)},
               {"fits", fits}};
    PutNumber(entry, "seeds_factor", size.seeds_factor);
    json["sizes"].push_back(std::move(entry));
  }
  return json;
}

}  // namespace

std::string RenderLadder(const LadderStatement& statement) {
  const double confidence = statement.question.prediction.confidence;
  std::string text = fmt::format(
      "Gaps to {} in nats, with {:g} % intervals; margin {:g} % of its loss, "
      "{:.4f} nats at the largest trained size\n",
      statement.baseline, 100 * confidence, statement.question.margin_percent,
      statement.margin_nats);
  for (const ArmStatement& arm : statement.arms) {
    text += "\n" + ArmLines(arm, confidence);
  }
  if (!statement.notes.empty()) text += "\n";
  for (const std::string& note : statement.notes) text += note + "\n";
  return text;
}

std::string RenderLadderJson(const LadderStatement& statement) {
  Json json{{"schema_version", kLadderSchemaVersion},
            {"experiment", statement.experiment},
            {"baseline", statement.baseline},
            {"confidence", statement.question.prediction.confidence},
            {"margin_percent", statement.question.margin_percent},
            {"margin_nats", statement.margin_nats},
            {"arms", Json::array()},
            {"notes", statement.notes}};
  for (const ArmStatement& arm : statement.arms) {
    json["arms"].push_back(ArmJson(arm));
  }
  return json.dump(2) + "\n";
}

}  // namespace isoloss::report
