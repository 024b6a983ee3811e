#include "isoloss/verdicts/verdict_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/base/printable.h"
#include "isoloss/gate/outcome.h"
#include "isoloss/report/json.h"
#include "isoloss/system/json_file.h"

namespace isoloss::verdicts {
namespace {

using document::Json;

/// Readers of a verdict rely on these keys; docs/verdict.schema.json has all of
/// them. Key `reading` is missing in files of earlier versions.
constexpr const char* kVerdictShape = R"({
  "schema_version": "i", "outcome": "s", "exit_code": "i",
  "experiment": "s",
  "tool_version": "s", "commit": "s", "config_digest": "s",
  "corpus": "s", "corpus_digest": "s",
  "steps_planned": "i", "tokens_per_step": "i", "parameters": "i",
  "policy": {"margin_percent": "n"}, "policy_digest": "s", "evidence": ["s"], "looks": "o?",
  "baseline": {"arm": "s", "recipe": "s", "runs": [
      {"file": "s", "seed": "i", "final_weights_digest": "s"}]},
  "candidate": {"arm": "s", "recipe": "s", "runs": [
      {"file": "s", "seed": "i", "final_weights_digest": "s"}]},
  "levels": [{"id": "s", "outcome": "s?"}],
  "levels_without_evidence": ["s"],
  "checks": [{"level": "s", "name": "s", "outcome": "s", "quantity": "s",
      "value": "n", "relation": "s", "limit": "n", "lower": "n", "upper": "n",
      "interval_level": "n", "unit": "s", "evidence": "s", "findings": ["s"],
      "next": "s", "gates": "b"}],
  "measures": [{"name": "s", "value": "n", "unit": "s", "evidence": "s"}],
  "tensors": [{"tensor": "s", "statistic": "s", "step": "i", "z": "n",
      "adjusted_p": "n"}],
  "controls": {"statement": "s",
      "control": {"arm": "s", "recipe": "s", "tests": ["o"], "nullable": true},
      "null_arms": [{"arm": "s", "recipe": "s", "tests": ["o"]}]},
  "final_window": {"first_step": "i", "last_step": "i",
      "seeds": [{"seed": "i", "final_window_percent": "n"}],
      "nullable": true},
  "precision": "o?",
  "first_divergences": [{"seed": "i", "step": "i?"}],
  "warnings": ["s"]
})";

constexpr const char* kReadingShape = R"({"reading": {"headline": "s",
  "reasons": ["s"], "could_have_seen": ["s"], "holds_for": ["s"],
  "next": ["s"]}})";

gate::Outcome OutcomeOf(const Json& object, const std::filesystem::path& file) {
  const auto& name = object["outcome"].get_ref<const std::string&>();
  for (const gate::Outcome outcome :
       {gate::Outcome::kPass, gate::Outcome::kInconclusive,
        gate::Outcome::kFail, gate::Outcome::kInvalid}) {
    if (name == gate::OutcomeName(outcome)) return outcome;
  }
  ThrowError(ErrorKind::kFormat,
             "{}: it has the outcome `{}`, but there are PASS, INCONCLUSIVE, "
             "FAIL and INVALID. Write it again with `isoloss gate`.",
             file.string(), Printable(name.substr(0, 40)));
}

/// Checks that nobody edited the verdict. Files of earlier versions carry no
/// digest.
void CheckDigest(const Json& json, const std::filesystem::path& file) {
  if (!json.contains("digest") ||
      json["digest"] == report::VerdictDigest(json)) {
    return;
  }
  ThrowError(ErrorKind::kFormat,
             "{}: its digest is not that of its content, so it was edited. "
             "Write it again with `isoloss gate`.",
             file.string());
}

/// Checks that `whole` has the outcome and exit code of the severest of `parts`
/// that count, as gate::Severest has it.
void CheckOutcome(const Json& whole, const Json& parts,
                  const std::filesystem::path& file) {
  std::optional<gate::Outcome> severest;
  for (const Json& part : parts) {
    const gate::Outcome outcome = OutcomeOf(part, file);
    if (part.contains("gates") && part["gates"] == false) continue;
    severest = std::max(severest.value_or(gate::Outcome::kPass), outcome);
  }
  const gate::Outcome expected = severest.value_or(gate::Outcome::kInvalid);
  if (OutcomeOf(whole, file) == expected &&
      whole["exit_code"] == gate::ExitCode(expected)) {
    return;
  }
  ThrowError(
      ErrorKind::kFormat,
      "{}: it claims {} with exit code {}, but the severest of its parts "
      "is {} with exit code {}. Write it again with `isoloss gate`.",
      file.string(), whole["outcome"].get<std::string>(),
      whole["exit_code"].dump(), gate::OutcomeName(expected),
      gate::ExitCode(expected));
}

}  // namespace

std::vector<Json> ReadVerdictFile(const std::filesystem::path& path) {
  const system::JsonFile file(path, "verdict");
  file.Check(R"({"schema_version": "i", "outcome": "s", "exit_code": "i"})");
  const bool several = file.json().contains("verdicts");
  if (several) file.Check(R"({"verdicts": ["o"]})");
  std::vector<Json> verdicts;
  for (const Json& verdict :
       several ? file.json()["verdicts"] : Json::array({file.json()})) {
    file.Check(kVerdictShape, &verdict);
    if (verdict.contains("reading")) file.Check(kReadingShape, &verdict);
    CheckOutcome(verdict, verdict["checks"], path);
    CheckDigest(verdict, path);
    verdicts.push_back(verdict);
  }
  if (several) {
    CheckOutcome(file.json(), file.json()["verdicts"], path);
    CheckDigest(file.json(), path);
  }
  return verdicts;
}

}  // namespace isoloss::verdicts
