// Writes a ladder as text, JSON and a picture.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "isoloss/base/portable_math.h"
#include "isoloss/estimators/size_text.h"
#include "isoloss/studies/documents.h"
#include "isoloss/studies/study.h"

namespace isoloss::studies {
namespace {

using document::Document;
using document::PictureMark;
using document::PicturePanel;
using document::SvgAxis;
using estimators::ArmStatement;
using estimators::GapInterval;
using estimators::LadderQuestion;
using estimators::LadderStatement;
using estimators::ScaleVerdict;
using estimators::SizeStatement;

std::string GapText(const GapInterval& gap) {
  return fmt::format("{:+.3f} [{:+.3f}, {:+.3f}]", gap.estimate, gap.lower,
                     gap.upper);
}

void PutGap(const char* key, const std::optional<GapInterval>& gap,
            Document& document) {
  if (gap) {
    document.PutInterval(key, gap->estimate, gap->lower, gap->upper);
  } else {
    document.Put(key, {});
  }
}

void PutSize(const estimators::Size& size, Document& document) {
  document.Put("parameters", size.parameters);
  document.Put("active_parameters", size.ActiveParameters());
  document.Put("tokens", size.tokens);
}

std::string VerdictText(ScaleVerdict verdict) {
  switch (verdict) {
    case ScaleVerdict::kSafe:
      return "SAFE";
    case ScaleVerdict::kUnsafe:
      return "UNSAFE";
    case ScaleVerdict::kInconclusive:
      break;
  }
  return "INCONCLUSIVE";
}

/// Returns what the verdict rests on, since no run is as large as the size.
std::string MustBeTrueText(const SizeStatement& size,
                           const GapInterval& slope) {
  return fmt::format(
      "What must be true: to leave the margin at {}, the gap must grow by "
      "{:.3f} % per decade of compute beyond the ladder; measured growth is "
      "{:+.3f} [{:+.3f}..{:+.3f}] % per decade.",
      estimators::SizeText(size.size), *size.must_grow, slope.estimate,
      slope.lower, slope.upper);
}

/// Returns what would settle a size. Doubts are named elsewhere.
std::string RemedyText(const SizeStatement& size, double margin) {
  if (size.verdict != ScaleVerdict::kInconclusive) return "";
  const GapInterval& gap = size.gap_percent;
  if (-margin < gap.lower && gap.upper < margin) {
    return "The line lies inside the margin, but the doubts below keep the "
           "size from being safe.";
  }
  return fmt::format(
      "An arm without any gap would be safe in about nine of ten such ladders "
      "with {} seeds of each size. Larger sizes take fewer.",
      size.seeds_without_gap);
}

Document OtherLawDocument(const estimators::OtherLaw& law) {
  Document document;
  document.Put("law", law.name);
  PutGap("gap_percent", law.gap_percent, document);
  document.Say(fmt::format("{:<25} {}  (decides nothing)", law.name,
                           GapText(law.gap_percent)),
               4);
  return document;
}

Document SizeDocument(const SizeStatement& size,
                      const std::optional<GapInterval>& slope,
                      const LadderQuestion& question) {
  Document document;
  document.Put("name", estimators::SizeText(size.size));
  PutSize(size.size, document);
  document.Put("verdict",
               estimators::WordOf(estimators::kScaleVerdicts, size.verdict));
  PutGap("gap_percent", size.gap_percent, document);
  document.Put("decades_beyond", size.decades_beyond);
  document.Put("must_grow_percent_a_decade", size.must_grow);
  if (size.must_grow) {
    document.Put("what_must_be_true", MustBeTrueText(size, *slope));
  } else {
    document.Put("what_must_be_true", {});
  }
  document.Put("seeds_without_gap", size.seeds_without_gap);
  document.Say(
      fmt::format("{} ({} active parameters, {:.1f} decades of compute beyond "
                  "the ladder): {}",
                  estimators::SizeText(size.size),
                  estimators::NumberText(size.size.ActiveParameters()),
                  size.decades_beyond, VerdictText(size.verdict)),
      2);
  document.Say(fmt::format("{:<25} {}", "line", GapText(size.gap_percent)), 4);
  document.PutEach("sensitivity", size.others, OtherLawDocument);
  const std::string remedy = RemedyText(size, question.margin_percent);
  if (!remedy.empty()) document.Say(remedy, 4);
  return document;
}

Document CellDocument(const estimators::GapCell& cell, double confidence) {
  const GapInterval gap = estimators::MeanGap(cell).Interval(confidence);
  Document document;
  document.Put("name", cell.name);
  PutSize(cell.size, document);
  document.Put("gaps_nats", cell.gaps);
  document.Put("baseline_nats", cell.baseline);
  PutGap("gap_percent", gap, document);
  document.Say(fmt::format("{:<16} {:>3} seeds  {}", cell.name,
                           cell.gaps.size(), GapText(gap)),
               2);
  return document;
}

/// Puts the cell with a large batch beside its twin.
Document LargeBatchDocument(const ArmStatement& arm, double confidence) {
  const estimators::LargeBatch& batch = *arm.arm.large_batch;
  Document document = CellDocument(batch.cell, confidence);
  document.Put("twin", batch.twin);
  PutGap("difference_percent", arm.of_batch, document);
  if (!arm.of_batch) return document;
  document.Say(
      fmt::format("minus {}: {}: {}", batch.twin, GapText(*arm.of_batch),
                  arm.of_batch->Holds(0) ? "the batches are not told apart"
                                         : "the gap depends on the batch"),
      4);
  return document;
}

void AddLine(const ArmStatement& arm, Document& document) {
  PutGap("slope_percent_a_decade", arm.slope, document);
  document.Put("scatter", arm.scatter);
  if (arm.slope) {
    document.Say(fmt::format("slope of the line, % per decade: {}{}",
                             GapText(*arm.slope),
                             arm.slope->Holds(0) ? "" : "  (not 0)"),
                 2);
  }
  if (arm.scatter) {
    document.Say(fmt::format("scatter about it, over that of seeds alone: "
                             "{:.2f} (near 1 if the line is the law)",
                             *arm.scatter),
                 2);
  }
}

Document ArmDocument(const ArmStatement& arm, const LadderQuestion& question) {
  Document document;
  document.Say("");
  document.Say(fmt::format(
      "{} ({}, recipe {})", arm.arm.name,
      estimators::WordOf(estimators::kArmRoles, arm.arm.role), arm.arm.recipe));
  document.Put("name", arm.arm.name);
  document.Put("recipe", arm.arm.recipe);
  document.Put("role", estimators::WordOf(estimators::kArmRoles, arm.arm.role));
  document.PutEach("cells", arm.arm.cells, [&](const auto& cell) {
    return CellDocument(cell, question.confidence);
  });
  if (arm.arm.large_batch) {
    document.PutObject("large_batch",
                       LargeBatchDocument(arm, question.confidence));
  } else {
    document.Put("large_batch", {});
  }
  AddLine(arm, document);
  document.PutEach("sizes", arm.sizes, [&](const SizeStatement& size) {
    return SizeDocument(size, arm.slope, question);
  });
  document.Put("doubts", arm.doubts);
  for (const std::string& doubt : arm.doubts) {
    document.Say("Not safe: " + doubt, 2);
  }
  return document;
}

/// Says the verdict of each candidate and size, and below it what must be true.
void SayVerdicts(const LadderStatement& statement, Document& document) {
  for (const ArmStatement& arm : statement.arms) {
    if (arm.arm.role != estimators::ArmRole::kCandidate) continue;
    for (const SizeStatement& size : arm.sizes) {
      document.Say(
          fmt::format("{} at {}: {}: gap {} % of the loss of {}, margin {:g} %",
                      arm.arm.name, estimators::SizeText(size.size),
                      VerdictText(size.verdict), GapText(size.gap_percent),
                      statement.baseline, statement.question.margin_percent));
      if (size.must_grow) document.Say(MustBeTrueText(size, *arm.slope));
    }
  }
}

/// Puts the exponent of learning rates, with the ends that seeds give.
void AddRate(const estimators::RateExponent& rate, Document& document) {
  const bool measured = rate.why_assumed.empty();
  document.PutInterval("rate_exponent", rate.value, rate.least, rate.largest);
  document.Put("rate_exponent_measured", measured);
  std::string by_seed = "nobody knows what single seeds give";
  if (std::isfinite(rate.least)) {
    by_seed = fmt::format("single seeds give {:.2f} to {:.2f}", rate.least,
                          rate.largest);
  }
  document.Say(fmt::format(
      "Learning rates grow with the power {:.2f} of the width ({}).",
      rate.value, measured ? "measured; " + by_seed : "assumed"));
}

}  // namespace

Document LadderDocument(const LadderStatement& statement) {
  const LadderQuestion& question = statement.question;
  Document document;
  SayVerdicts(statement, document);
  document.Say(
      fmt::format("Gaps are in % of the loss of {}, with {:g} % intervals.",
                  statement.baseline, 100 * question.confidence));
  document.Put("schema_version", 2);
  document.Put("experiment", statement.experiment);
  document.Put("baseline", statement.baseline);
  document.Put("confidence", question.confidence);
  document.Put("margin_percent", question.margin_percent);
  AddRate(statement.rate, document);
  document.PutEach("arms", statement.arms, [&](const ArmStatement& arm) {
    return ArmDocument(arm, question);
  });
  document.Put("notes", statement.notes);
  if (!statement.notes.empty()) document.Say("");
  SayNotes(statement.notes, document);
  return document;
}

namespace {

constexpr int kPointsOfTheLine = 60;

void AddGap(const estimators::Size& size, const GapInterval& gap,
            PictureMark mark, PicturePanel& panel) {
  mark.x = size.Flops();
  mark.y = gap.estimate;
  mark.interval = std::pair(gap.lower, gap.upper);
  panel.marks.push_back(mark);
  panel.y.holds.insert(panel.y.holds.end(), {gap.lower, gap.upper});
}

/// Draws the line with its interval, from the smallest cell to the largest size
/// that was asked for.
void AddLineTo(double most, const ArmStatement& arm, double confidence,
               PicturePanel& panel) {
  const auto least = std::ranges::min(
      arm.arm.cells, {}, [](const auto& cell) { return cell.size.Flops(); });
  document::PictureBand band{.edges = {}, .colour = document::colour::kBlue};
  document::PicturePath path{.points = {}, .colour = document::colour::kBlue};
  for (int i = 0; i <= kPointsOfTheLine; ++i) {
    const double flops =
        least.size.Flops() *
        portable::Pow(most / least.size.Flops(),
                      static_cast<double>(i) / kPointsOfTheLine);
    const GapInterval gap =
        estimators::LineAt(arm.arm.cells, flops).Interval(confidence);
    band.edges.push_back({flops, gap.lower, gap.upper});
    path.points.push_back({flops, gap.estimate});
  }
  panel.bands.push_back(std::move(band));
  panel.paths.push_back(std::move(path));
}

PicturePanel ArmPanel(const ArmStatement& arm, const LadderQuestion& question) {
  const double margin = question.margin_percent;
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
      .rules = {{.at = margin}, {.at = -margin}}};
  if (arm.arm.cells.empty()) panel.instead = "No size has two seeds.";
  double most = 0;
  for (const SizeStatement& size : arm.sizes) {
    const std::string name = estimators::SizeText(size.size);
    panel.title +=
        fmt::format("{} {} {}", &size == &arm.sizes.front() ? ":" : ",", name,
                    VerdictText(size.verdict));
    panel.labels.push_back({.x = size.size.Flops(), .text = name});
    AddGap(size.size, size.gap_percent, {.colour = document::colour::kBlue},
           panel);
    most = std::max(most, size.size.Flops());
  }
  if (most > 0) AddLineTo(most, arm, question.confidence, panel);
  for (const estimators::GapCell& cell : arm.arm.cells) {
    AddGap(cell.size, estimators::MeanGap(cell).Interval(question.confidence),
           {}, panel);
  }
  if (arm.arm.large_batch) {
    constexpr double kShift = 7;  // right of its twin
    const estimators::GapCell& cell = arm.arm.large_batch->cell;
    AddGap(cell.size, estimators::MeanGap(cell).Interval(question.confidence),
           {.colour = document::colour::kOrange, .shift = kShift}, panel);
  }
  return panel;
}

}  // namespace

document::Picture LadderPicture(const LadderStatement& statement) {
  namespace colour = document::colour;
  document::Picture picture{
      .title = fmt::format(
          "Gap in % of the loss of {} over 6 N D operations (N: active "
          "parameters), {:g} % intervals",
          statement.baseline, 100 * statement.question.confidence),
      .parts = {
          document::PictureKeys{
              {{colour::kInk, "measured"},
               {colour::kOrange, "with 16 times the batch"},
               {colour::kBlue, "line"},
               {colour::kRed,
                fmt::format("margin, {:g} %",
                            statement.question.margin_percent),
                "--"}}},
          document::SmallPrint("The axis is logarithmic beyond the margin.")}};
  for (const ArmStatement& arm : statement.arms) {
    picture.parts.emplace_back(ArmPanel(arm, statement.question));
  }
  return picture;
}

}  // namespace isoloss::studies
