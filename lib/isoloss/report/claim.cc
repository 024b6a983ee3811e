#include "isoloss/report/claim.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "isoloss/base/printable.h"
#include "isoloss/document/json.h"

namespace isoloss::report {
namespace {

using document::Json;
using document::PutNumber;

constexpr int64_t kClaimSchemaVersion = 1;

std::string CountsText(const claims::ContrastResult& result) {
  if (result.contrast.measure != claims::Measure::kDivergence) {
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

std::string ContrastLines(const claims::ContrastResult& result) {
  const claims::Contrast& contrast = result.contrast;
  std::string text = fmt::format(
      "  {}{}: {}\n      {}, {} {} ({}): {}\n", contrast.name,
      contrast.role == claims::Role::kControl ? " (control)" : "",
      Printable(contrast.says), ContrastText(result), ExpectedWord(contrast),
      claims::ClaimedText(contrast), CountsText(result), SideText(result));
  if (!result.note.empty()) text += "      " + result.note + ".\n";
  return text;
}

Json ContrastJson(const claims::ContrastResult& result) {
  const claims::Contrast& contrast = result.contrast;
  Json json{{"name", contrast.name},
            {"says", contrast.says},
            {"measure", claims::WordOf(claims::kMeasures, contrast.measure)},
            {"relation", claims::WordOf(claims::kRelations, contrast.relation)},
            {"bound", contrast.bound}};
  PutNumber(json, "equivalence", contrast.equivalence);
  json["unit"] = claims::UnitOf(contrast.measure);
  json["role"] = claims::WordOf(claims::kRoles, contrast.role);
  json["cell"] = contrast.cell;
  json["arm"] = contrast.arm;
  json["reference"] = contrast.reference;
  if (contrast.measure == claims::Measure::kInteraction) {
    json["other_cell"] = contrast.other_cell;
    json["other_arm"] = contrast.other_arm;
    json["other_reference"] = contrast.other_reference;
  }
  PutNumber(json, "estimate", result.estimate);
  PutNumber(json, "lower", result.lower);
  PutNumber(json, "upper", result.upper);
  json["seeds"] = result.seeds;
  if (contrast.measure == claims::Measure::kDivergence) {
    PutNumber(json, "p", result.p);
    json["diverged"] = result.diverged;
    json["runs"] = result.runs;
    json["reference_diverged"] = result.reference_diverged;
    json["reference_runs"] = result.reference_runs;
  }
  json["side"] = claims::WordOf(claims::kSides, result.side);
  json["note"] = result.note;
  return json;
}

}  // namespace

std::string ContrastText(const claims::ContrastResult& result) {
  const bool factor =
      result.contrast.measure == claims::Measure::kParameterFactor;
  const std::string unit = claims::UnitOf(result.contrast.measure);
  const auto number = [factor](double value) {
    return factor ? fmt::format("{:.3g}", value)
                  : fmt::format("{:+.3g}", value);
  };
  return fmt::format("{} [{}, {}]{}{}", number(result.estimate),
                     number(result.lower), number(result.upper),
                     unit.empty() ? "" : " ", unit);
}

std::string ExpectedWord(const claims::Contrast& contrast) {
  return contrast.role == claims::Role::kControl ? "expected" : "claimed";
}

std::string SideText(const claims::ContrastResult& result) {
  const claims::Role role = result.contrast.role;
  std::string text = "undecided";
  if (result.side == claims::Side::kOther) text = "on the other side";
  if (result.side == claims::Side::kClaimed) {
    text = role == claims::Role::kControl ? "on the control's side"
                                          : "on the claim's side";
  }
  return text + (role == claims::Role::kShown ? "; it does not count" : "");
}

std::string ConfidenceText(const claims::ClaimResult& result) {
  const claims::Claim& claim = result.claim;
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

std::string RenderClaim(const claims::ClaimResult& result) {
  const claims::Claim& claim = result.claim;
  std::string text = fmt::format(
      "{}\n  {}\n  Source: {}{}, {}\n  There: {}\n  Here: {}\n\n",
      Printable(claim.title), Printable(claim.statement),
      Printable(claim.paper),
      claim.arxiv.empty() ? "" : ", arXiv " + Printable(claim.arxiv),
      Printable(claim.section), Printable(claim.published),
      Printable(claim.here));
  for (const claims::ContrastResult& contrast : result.contrasts) {
    text += ContrastLines(contrast);
  }
  text += fmt::format("\n{}\nVerdict: {}\n", ConfidenceText(result),
                      claims::WordOf(claims::kVerdicts, result.verdict));
  if (!result.note.empty()) text += result.note + ".\n";
  return text;
}

std::string RenderClaimJson(const claims::ClaimResult& result) {
  const claims::Claim& claim = result.claim;
  Json json{{"schema_version", kClaimSchemaVersion},
            {"title", claim.title},
            {"statement", claim.statement},
            {"paper", claim.paper},
            {"arxiv", claim.arxiv},
            {"section", claim.section},
            {"published", claim.published},
            {"here", claim.here},
            {"looks", claim.looks},
            {"confidence", result.confidence},
            {"verdict", claims::WordOf(claims::kVerdicts, result.verdict)},
            {"note", result.note},
            {"contrasts", Json::array()}};
  for (const claims::ContrastResult& contrast : result.contrasts) {
    json["contrasts"].push_back(ContrastJson(contrast));
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace isoloss::report
