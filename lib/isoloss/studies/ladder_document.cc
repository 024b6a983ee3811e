// Writes a ladder as text, JSON and a picture.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "isoloss/studies/documents.h"
#include "isoloss/studies/study.h"

namespace isoloss::studies {
namespace {

using document::Document;
using document::PictureMark;
using document::PicturePanel;
using document::SvgAxis;
using estimators::ArmStatement;
using estimators::GapFit;
using estimators::GapInterval;
using estimators::LadderStatement;
using estimators::ScaleVerdict;
using estimators::SizeStatement;

std::string GapNumber(double nats) {
  // A larger gap is no prediction: even a bigram's loss is smaller.
  constexpr double kLargestGap = 10;
  if (std::fabs(nats) > kLargestGap) {
    return fmt::format("{} {:g}", nats > 0 ? "above" : "below",
                       std::copysign(kLargestGap, nats));
  }
  return fmt::format("{:+.4f}", nats);
}

std::string GapText(const GapInterval& gap) {
  return fmt::format("{} [{}, {}]", GapNumber(gap.estimate),
                     GapNumber(gap.lower), GapNumber(gap.upper));
}

void PutGap(const char* key, const GapInterval& gap, Document& document) {
  document.PutInterval(key, gap.estimate, gap.lower, gap.upper);
}

/// Returns the remedy for a size that is not settled. Doubts are named
/// elsewhere.
std::string RemedyText(const SizeStatement& size, bool doubts) {
  if (size.verdict != ScaleVerdict::kInconclusive) return "";
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

Document FitDocument(const GapFit& fit) {
  Document document;
  document.Put("form", estimators::WordOf(estimators::kFormNames, fit.form));
  PutGap("gap_nats", fit.predicted, document);
  document.Put("fit_p", fit.fit_p);
  if (fit.power_law) {
    document.Put("of_parameters", fit.power_law->of_parameters);
    document.Put("of_tokens", fit.power_law->of_tokens);
  }
  if (fit.two_terms) {
    document.Put("alpha", fit.two_terms->alpha);
    document.Put("beta", fit.two_terms->beta);
    document.Put("exponents_fitted", fit.exponents_fitted);
  }
  if (fit.form == estimators::Form::kEffectiveSize) {
    document.Put("parameter_factor", fit.parameter_factor);
    document.Put("data_factor", fit.data_factor);
  }
  document.Say(fmt::format("{:<15} {}{}{}{}",
                           estimators::WordOf(estimators::kFormTexts, fit.form),
                           GapText(fit.predicted),
                           fit.two_terms && !fit.exponents_fitted
                               ? "  (widest of exponents from 0.2 to 0.5)"
                               : "",
                           fit.fit_p ? "" : "  (fit not tried)",
                           fit.Misfits() ? "  (does not fit)" : ""),
               4);
  return document;
}

Document SizeDocument(const SizeStatement& size, bool doubts) {
  Document document;
  document.Put("name", size.name);
  document.Put("parameters", size.size.parameters);
  document.Put("tokens", size.size.tokens);
  document.Put("margin_nats", size.margin_nats);
  const std::string verdict =
      estimators::WordOf(estimators::kScaleVerdicts, size.verdict);
  document.Put("verdict", verdict);
  document.Say(
      fmt::format("{}: {} (margin {:.4f} nats)", size.name,
                  size.verdict == ScaleVerdict::kInconclusive ? "INCONCLUSIVE"
                                                              : verdict,
                  size.margin_nats),
      2);
  document.PutEach("fits", size.fits, FitDocument);
  document.Put("seeds_factor", size.seeds_factor);
  const std::string remedy = RemedyText(size, doubts);
  if (!remedy.empty()) document.Say(remedy, 4);
  return document;
}

Document HeldOutDocument(const estimators::HeldOutRung& rung) {
  Document document;
  document.Put("form", estimators::WordOf(estimators::kFormNames, rung.form));
  document.Put("cell", rung.cell);
  document.Put("measured_nats", rung.measured);
  PutGap("predicted_nats", rung.interval, document);
  document.Put("inside", rung.inside);
  document.Say(
      fmt::format("{} held out, by the {}: measured {:+.4f}, predicted {}: {}",
                  rung.cell,
                  estimators::WordOf(estimators::kFormTexts, rung.form),
                  rung.measured, GapText(rung.interval),
                  rung.inside ? "inside" : "OUTSIDE"),
      2);
  return document;
}

Document CellDocument(const estimators::GapCell& cell, double confidence) {
  Document document;
  document.Put("name", cell.name);
  document.Put("parameters", cell.size.parameters);
  document.Put("tokens", cell.size.tokens);
  document.Put("gaps_nats", cell.gaps);
  document.Put("baseline_nats", cell.baseline);
  document.Say(
      fmt::format("{:<12} {:>3} seeds  {}", cell.name, cell.gaps.size(),
                  GapText(estimators::MeasuredGap(cell, confidence))),
      2);
  return document;
}

Document ArmDocument(const ArmStatement& arm, double confidence) {
  Document document;
  document.Say("");
  document.Say(fmt::format(
      "{} ({}, recipe {})", arm.arm.name,
      estimators::WordOf(estimators::kArmRoles, arm.arm.role), arm.arm.recipe));
  document.Put("name", arm.arm.name);
  document.Put("recipe", arm.arm.recipe);
  document.Put("role", estimators::WordOf(estimators::kArmRoles, arm.arm.role));
  document.PutEach("cells", arm.arm.cells, [&](const auto& cell) {
    return CellDocument(cell, confidence);
  });
  if (arm.slope) {
    PutGap("slope_nats_a_tenfold", *arm.slope, document);
    const bool settled = arm.slope->lower > 0 || arm.slope->upper < 0;
    document.Say(fmt::format("slope, nats for ten times the operations: {}{}",
                             GapText(*arm.slope), settled ? "  (not 0)" : ""),
                 2);
  } else {
    document.Put("slope_nats_a_tenfold", {});
  }
  document.PutEach("held_out", arm.held_out, HeldOutDocument);
  document.PutEach("sizes", arm.sizes, [&](const SizeStatement& size) {
    return SizeDocument(size, !arm.doubts.empty());
  });
  document.Put("doubts", arm.doubts);
  for (const std::string& doubt : arm.doubts) {
    document.Say("Not safe: " + doubt, 2);
  }
  return document;
}

}  // namespace

Document LadderDocument(const LadderStatement& statement) {
  const double confidence = statement.question.prediction.confidence;
  Document document;
  document.Say(fmt::format(
      "Gaps to {} in nats, with {:g} % intervals; margin {:g} % of its loss, "
      "{:.4f} nats at the largest trained size",
      statement.baseline, 100 * confidence, statement.question.margin_percent,
      statement.margin_nats));
  document.Put("schema_version", 1);
  document.Put("experiment", statement.experiment);
  document.Put("baseline", statement.baseline);
  document.Put("confidence", confidence);
  document.Put("margin_percent", statement.question.margin_percent);
  document.Put("margin_nats", statement.margin_nats);
  document.PutEach("arms", statement.arms, [&](const ArmStatement& arm) {
    return ArmDocument(arm, confidence);
  });
  document.Put("notes", statement.notes);
  if (!statement.notes.empty()) document.Say("");
  SayNotes(statement.notes, document);
  return document;
}

namespace {

std::string_view ColourOf(estimators::Form form) {
  switch (form) {
    case estimators::Form::kPowerLaw:
      return document::colour::kBlue;
    case estimators::Form::kEffectiveSize:
      return document::colour::kOrange;
    case estimators::Form::kDataPenalty:
      break;
  }
  return document::colour::kGreen;
}

/// Gaps span orders of magnitude on both sides of 0. Their axis is therefore
/// linear up to the margin, and logarithmic beyond.
void AddGap(const estimators::Size& size, const GapInterval& gap,
            std::string_view colour, double shift, double margin,
            PicturePanel& panel) {
  constexpr double kFurthest = 300;  // margins
  panel.marks.push_back({.x = size.Flops(),
                         .y = gap.estimate,
                         .interval = std::pair(gap.lower, gap.upper),
                         .colour = colour,
                         .shift = shift});
  for (const double end : {gap.lower, gap.upper}) {
    if (!std::isfinite(end)) continue;
    const double shown = std::min(std::fabs(end), kFurthest * margin);
    panel.y.holds.insert(panel.y.holds.end(), {-shown, shown});
  }
}

PicturePanel ArmPanel(const ArmStatement& arm,
                      const LadderStatement& statement) {
  constexpr double kShift = 7;  // between predictions of a size
  const double margin = statement.margin_nats;
  PicturePanel panel{
      .title =
          fmt::format("{} ({})", arm.arm.name,
                      estimators::WordOf(estimators::kArmRoles, arm.arm.role)),
      .x = {.scale = SvgAxis::Scale::kLog,
            .widen = 0.03,
            .spacing = 40,  // of "10^24"
            .label = document::DecadeTick},
      .y = {.scale = SvgAxis::Scale::kAsinh,
            .unit = margin,
            .holds = {-2 * margin, 2 * margin},
            .fixed = true,
            .spacing = 14},
      .rules = {{.at = margin}}};
  if (arm.arm.cells.empty()) panel.instead = "No size has two seeds.";
  for (const estimators::GapCell& cell : arm.arm.cells) {
    AddGap(
        cell.size,
        estimators::MeasuredGap(cell, statement.question.prediction.confidence),
        document::colour::kInk, 0, margin, panel);
  }
  for (const SizeStatement& size : arm.sizes) {
    panel.title += fmt::format(
        "{} {} {}", &size == &arm.sizes.front() ? ":" : ",", size.name,
        estimators::WordOf(estimators::kScaleVerdicts, size.verdict));
    const double x = size.size.Flops();
    panel.rules.push_back({.at = x,
                           .vertical = true,
                           .colour = document::colour::kZeroLine,
                           .dashes = "1 3"});
    panel.labels.push_back({.x = x, .text = size.name});
    // This size's margin may be smaller than the margin of the dashed line.
    panel.marks.push_back({.x = x,
                           .y = size.margin_nats,
                           .colour = document::colour::kRed,
                           .sign = PictureMark::Sign::kDash});
    double shift = -kShift;
    for (const GapFit& fit : size.fits) {
      AddGap(size.size, fit.predicted, ColourOf(fit.form), shift, margin,
             panel);
      shift += kShift;
    }
  }
  return panel;
}

}  // namespace

document::Picture LadderPicture(const LadderStatement& statement) {
  namespace colour = document::colour;
  document::Picture picture{
      .title = fmt::format(
          "Gap to {} in nats over 6 N D operations, {:g} % intervals",
          statement.baseline, 100 * statement.question.prediction.confidence),
      .parts = {
          document::PictureKeys{
              {{colour::kInk, "measured"},
               {colour::kBlue, "predicted by a power law"},
               {colour::kOrange, "by effective size"},
               {colour::kGreen, "by a data penalty"},
               {colour::kRed,
                fmt::format("margin, {:.4f} nats at the largest size",
                            statement.margin_nats),
                "--"}}},
          document::SmallPrint(
              "The axis is logarithmic beyond the margin. Intervals with an "
              "arrow go on; without a dot, their estimate lies beyond, too.")}};
  for (const ArmStatement& arm : statement.arms) {
    picture.parts.emplace_back(ArmPanel(arm, statement));
  }
  return picture;
}

}  // namespace isoloss::studies
