// Writes a judged claim as text, JSON and a picture.

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "isoloss/base/printable.h"
#include "isoloss/document/text_layout.h"
#include "isoloss/studies/documents.h"

namespace isoloss::studies {
namespace {

using document::Document;
using estimators::ClaimResult;
using estimators::Contrast;
using estimators::ContrastResult;
using estimators::Measure;

bool IsControl(const Contrast& contrast) {
  return contrast.role == estimators::ContrastRole::kControl;
}

std::string CountsText(const ContrastResult& result) {
  if (result.contrast.measure != estimators::Measure::kDivergence) {
    return fmt::format("{} seeds", result.seeds);
  }
  std::string text = fmt::format(
      "{} of {} runs diverged, of the reference's "
      "{} of {}",
      result.counts.diverged, result.counts.runs,
      result.counts.reference_diverged, result.counts.reference_runs);
  if (result.p) text += fmt::format("; p = {:.2g}", *result.p);
  return text;
}

std::string ContrastText(const ContrastResult& result) {
  const bool factor =
      result.contrast.measure == estimators::Measure::kParameterFactor;
  const std::string unit = estimators::UnitOf(result.contrast.measure);
  const auto number = [factor](double value) {
    return factor ? fmt::format("{:.3g}", value)
                  : fmt::format("{:+.3g}", value);
  };
  return fmt::format("{} [{}, {}]{}{}", number(result.estimate),
                     number(result.lower), number(result.upper),
                     unit.empty() ? "" : " ", unit);
}

std::string ExpectedWord(const Contrast& contrast) {
  return IsControl(contrast) ? "expected" : "claimed";
}

/// Returns the verdict on a contrast. That on a control says whether it is
/// seen, and what is only shown does not count.
std::string VerdictText(const ContrastResult& result) {
  std::string text =
      IsControl(result.contrast)
          ? (estimators::IsSeen(result.verdict) ? "seen" : "not seen")
          : estimators::WordOf(estimators::kClaimVerdicts, result.verdict);
  if (result.contrast.role == estimators::ContrastRole::kShown) {
    text += "; it does not count";
  }
  return text;
}

std::string ConfidenceText(const ClaimResult& result) {
  const estimators::Claim& claim = result.claim;
  std::string together;
  if (claim.Counting() > 1) {
    together =
        fmt::format(", so that all {} that count hold together with 95 %",
                    claim.Counting());
  } else if (claim.looks > 1) {
    together = ", so that the one that counts holds with 95 %";
  }
  if (claim.looks > 1) {
    together += fmt::format(" over {} looks, each at fresh seeds", claim.looks);
  }
  return fmt::format("Each interval has {:.4g} % confidence{}.",
                     100 * result.confidence, together);
}

/// Puts the rule of a contrast.
void PutContrast(const Contrast& contrast, Document& document) {
  document.Put("name", contrast.name);
  document.Put("says", contrast.says);
  document.Put("measure",
               estimators::WordOf(estimators::kMeasures, contrast.measure));
  document.Put("relation",
               estimators::WordOf(estimators::kRelations, contrast.relation));
  document.Put("bound", contrast.bound);
  document.Put("published_size", contrast.published_size);
  document.Put("size_source", contrast.size_source);
  document.Put("equivalence", contrast.equivalence);
  document.Put("unit", estimators::UnitOf(contrast.measure));
  document.Put("role",
               estimators::WordOf(estimators::kContrastRoles, contrast.role));
  document.Put("cell", contrast.cell);
  document.Put("arm", contrast.arm);
  document.Put("reference", contrast.reference);
  if (contrast.measure != Measure::kInteraction) return;
  document.Put("other_cell", contrast.other_cell);
  document.Put("other_arm", contrast.other_arm);
  document.Put("other_reference", contrast.other_reference);
}

/// Returns a contrast with the findings of its runs.
Document ContrastDocument(const ContrastResult& result) {
  const Contrast& contrast = result.contrast;
  Document document;
  PutContrast(contrast, document);
  document.Put("estimate", result.estimate);
  document.Put("lower", result.lower);
  document.Put("upper", result.upper);
  document.Put("seeds", result.seeds);
  if (contrast.measure == Measure::kDivergence) {
    document.Put("p", result.p);
    document.Put("diverged", result.counts.diverged);
    document.Put("runs", result.counts.runs);
    document.Put("reference_diverged", result.counts.reference_diverged);
    document.Put("reference_runs", result.counts.reference_runs);
  }
  document.Put("spread", result.spread);
  document.Put("power", result.power ? std::optional(result.power->published)
                                     : std::nullopt);
  document.Put("power_of_nothing", result.power
                                       ? std::optional(result.power->nothing)
                                       : std::nullopt);
  document.Put("seeds_needed", result.seeds_needed);
  document.Put("verdict",
               estimators::WordOf(estimators::kClaimVerdicts, result.verdict));
  document.Put("note", result.note);
  document.Say(fmt::format("{}{}: {}", contrast.name,
                           IsControl(contrast) ? " (control)" : "",
                           Printable(contrast.says)),
               2);
  document.Say(
      fmt::format("{}, {} {} ({}): {}", ContrastText(result),
                  ExpectedWord(contrast), estimators::ClaimedText(contrast),
                  CountsText(result), VerdictText(result)),
      6);
  if (contrast.published_size) {
    document.Say(
        fmt::format("published: {} ({}){}", estimators::SizeText(contrast),
                    Printable(contrast.size_source),
                    result.power ? "; " + PowerText(contrast, *result.power,
                                                    result.seeds)
                                 : ""),
        6);
  }
  if (!result.note.empty()) document.Say(result.note + ".", 6);
  return document;
}

/// Returns the verdict; an undecided one says how many seeds would do.
std::string VerdictText(const ClaimResult& result) {
  const std::string word =
      estimators::WordOf(estimators::kClaimVerdicts, result.verdict);
  if (!result.seeds_needed) return word;
  const bool enough = std::ranges::all_of(
      result.contrasts, [&result](const ContrastResult& contrast) {
        return contrast.seeds >= *result.seeds_needed;
      });
  return fmt::format(
      "{} ({} seeds {})", word, *result.seeds_needed,
      enough ? "should have done: the truth may lie between" : "would do");
}

}  // namespace

std::string PowerText(const Contrast& contrast,
                      const estimators::ClaimPower& power, size_t seeds) {
  std::string text =
      fmt::format("{} seeds see it with chance {:.2f}", seeds, power.published);
  if (contrast.relation != estimators::Relation::kWithin) {
    text += fmt::format(", and an absence with chance {:.2f}", power.nothing);
  }
  return text;
}

Document ClaimDocument(const ClaimResult& result) {
  const estimators::Claim& claim = result.claim;
  Document document;
  document.Put("schema_version", 2);
  document.Put("title", claim.title);
  document.Put("statement", claim.statement);
  document.Put("paper", claim.paper);
  document.Put("arxiv", claim.arxiv);
  document.Put("section", claim.section);
  document.Put("published", claim.published);
  document.Put("here", claim.here);
  document.Put("looks", claim.looks);
  document.Put("confidence", result.confidence);
  document.Put("verdict",
               estimators::WordOf(estimators::kClaimVerdicts, result.verdict));
  document.Put("seeds_needed", result.seeds_needed);
  document.Put("note", result.note);
  document.Say(Printable(claim.title));
  document.Say(Printable(claim.statement), 2);
  document.Say(
      fmt::format(
          "Source: {}{}, {}", Printable(claim.paper),
          claim.arxiv.empty() ? "" : ", arXiv " + Printable(claim.arxiv),
          Printable(claim.section)),
      2);
  document.Say("There: " + Printable(claim.published), 2);
  document.Say("Here: " + Printable(claim.here), 2);
  document.Say("");
  document.PutEach("contrasts", result.contrasts, ContrastDocument);
  document.Say("");
  document.Say(ConfidenceText(result));
  document.Say("Verdict: " + VerdictText(result));
  if (!result.note.empty()) document.Say(result.note + ".");
  return document;
}

namespace {

std::string_view ColourOf(estimators::ClaimVerdict verdict) {
  switch (verdict) {
    case estimators::ClaimVerdict::kReproduced:
      return document::colour::kGreen;
    case estimators::ClaimVerdict::kContradicted:
      return document::colour::kRed;
    case estimators::ClaimVerdict::kTooSmall:
    case estimators::ClaimVerdict::kAbsent:
      return document::colour::kOrange;
    case estimators::ClaimVerdict::kUndecided:
      break;
  }
  return document::colour::kInk;
}

/// Returns one bound, or both bounds of `within` in ascending order.
std::vector<double> BoundsOf(const Contrast& contrast) {
  if (contrast.relation != estimators::Relation::kWithin)
    return {contrast.bound};
  return {-contrast.bound, contrast.bound};
}

/// Draws the claimed side in green, and the opposite side in red.
document::PictureStrip ContrastStrip(const ContrastResult& result) {
  constexpr size_t kLetters = 118;
  const Contrast& contrast = result.contrast;
  return {
      .title = document::Shortened(
          (IsControl(contrast) ? "Control: " : "") + Printable(contrast.says),
          kLetters),
      .text = fmt::format(
          "{}, {} {}: {}", ContrastText(result), ExpectedWord(contrast),
          estimators::ClaimedText(contrast), VerdictText(result)),
      .colour = ColourOf(result.verdict),
      .estimate = result.estimate,
      .lower = result.lower,
      .upper = result.upper,
      .bounds = BoundsOf(contrast),
      .green_first = contrast.relation == estimators::Relation::kBelow};
}

}  // namespace

document::Picture ClaimPicture(const ClaimResult& result) {
  namespace colour = document::colour;
  document::Picture picture{
      .title = fmt::format(
          "{}: {}", document::Shortened(Printable(result.claim.title), 70),
          VerdictText(result)),
      .colour = ColourOf(result.verdict),
      .parts = {document::SmallPrint(ConfidenceText(result)),
                document::SmallPrint("Intervals over seeds; dashed: the bound"),
                document::PictureKeys{
                    {{colour::kGreen, "the claim's or control's side"},
                     {colour::kRed, "the other side"}}}}};
  if (!result.note.empty()) {
    picture.parts.emplace_back(document::PictureText{
        result.note + ".",
        fmt::format("fill=\"{}\"", ColourOf(result.verdict))});
  }
  for (const ContrastResult& contrast : result.contrasts) {
    picture.parts.emplace_back(ContrastStrip(contrast));
  }
  return picture;
}

}  // namespace isoloss::studies
