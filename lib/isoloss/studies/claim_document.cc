// Writes a judged claim as text, JSON and a picture.

#include <fmt/format.h>

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
      result.diverged, result.runs, result.reference_diverged,
      result.reference_runs);
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

std::string SideText(const ContrastResult& result) {
  const estimators::ContrastRole role = result.contrast.role;
  std::string text = "undecided";
  if (result.side == estimators::Side::kOther) text = "on the other side";
  if (result.side == estimators::Side::kClaimed) {
    text = role == estimators::ContrastRole::kControl ? "on the control's side"
                                                      : "on the claim's side";
  }
  return text + (role == estimators::ContrastRole::kShown
                     ? "; it does not count"
                     : "");
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
    document.Put("diverged", result.diverged);
    document.Put("runs", result.runs);
    document.Put("reference_diverged", result.reference_diverged);
    document.Put("reference_runs", result.reference_runs);
  }
  document.Put("side", estimators::WordOf(estimators::kSides, result.side));
  document.Put("note", result.note);
  document.Say(fmt::format("{}{}: {}", contrast.name,
                           IsControl(contrast) ? " (control)" : "",
                           Printable(contrast.says)),
               2);
  document.Say(
      fmt::format("{}, {} {} ({}): {}", ContrastText(result),
                  ExpectedWord(contrast), estimators::ClaimedText(contrast),
                  CountsText(result), SideText(result)),
      6);
  if (!result.note.empty()) document.Say(result.note + ".", 6);
  return document;
}

}  // namespace

Document ClaimDocument(const ClaimResult& result) {
  const estimators::Claim& claim = result.claim;
  const std::string verdict =
      estimators::WordOf(estimators::kClaimVerdicts, result.verdict);
  Document document;
  document.Put("schema_version", 1);
  document.Put("title", claim.title);
  document.Put("statement", claim.statement);
  document.Put("paper", claim.paper);
  document.Put("arxiv", claim.arxiv);
  document.Put("section", claim.section);
  document.Put("published", claim.published);
  document.Put("here", claim.here);
  document.Put("looks", claim.looks);
  document.Put("confidence", result.confidence);
  document.Put("verdict", verdict);
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
  document.Say("Verdict: " + verdict);
  if (!result.note.empty()) document.Say(result.note + ".");
  return document;
}

namespace {

std::string_view SideColour(estimators::Side side) {
  if (side == estimators::Side::kClaimed) return document::colour::kGreen;
  return side == estimators::Side::kOther ? document::colour::kRed
                                          : document::colour::kInk;
}

std::string_view ClaimColour(estimators::ClaimVerdict verdict) {
  if (verdict == estimators::ClaimVerdict::kReproduced)
    return document::colour::kGreen;
  return verdict == estimators::ClaimVerdict::kContradicted
             ? document::colour::kRed
             : document::colour::kOrange;
}

/// Returns one bound, or both bounds of `within` in ascending order.
std::vector<double> BoundsOf(const Contrast& contrast) {
  if (contrast.relation != estimators::Relation::kWithin)
    return {contrast.bound};
  return {-contrast.bound, contrast.bound};
}

/// Draws the side of the claim or control in green, and the opposite side in
/// red.
document::PictureStrip ContrastStrip(const ContrastResult& result) {
  constexpr size_t kLetters = 118;
  const Contrast& contrast = result.contrast;
  return {
      .title = document::Shortened(
          (IsControl(contrast) ? "Control: " : "") + Printable(contrast.says),
          kLetters),
      .text = fmt::format("{}, {} {}: {}", ContrastText(result),
                          ExpectedWord(contrast),
                          estimators::ClaimedText(contrast), SideText(result)),
      .colour = SideColour(result.side),
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
          estimators::WordOf(estimators::kClaimVerdicts, result.verdict)),
      .colour = ClaimColour(result.verdict),
      .parts = {document::SmallPrint(ConfidenceText(result)),
                document::SmallPrint("Intervals over seeds; dashed: the bound"),
                document::PictureKeys{
                    {{colour::kGreen, "the claim's or control's side"},
                     {colour::kRed, "the other side"}}}}};
  if (!result.note.empty()) {
    picture.parts.emplace_back(document::PictureText{
        result.note + ".",
        fmt::format("fill=\"{}\"", ClaimColour(result.verdict))});
  }
  for (const ContrastResult& contrast : result.contrasts) {
    picture.parts.emplace_back(ContrastStrip(contrast));
  }
  return picture;
}

}  // namespace isoloss::studies
