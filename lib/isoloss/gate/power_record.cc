#include "isoloss/gate/power_record.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>
#include <tuple>

#include "isoloss/gate/sealed_json.h"

namespace isoloss::gate {
namespace {

constexpr double kConfidence = 0.95;
constexpr const char* kPowerRule =
    "A power record is what `isoloss lab mutants run` writes. Measure again.";

/// Parts of a power record by their keys: visit(key, part of record).
template <typename Visit, typename Record>
void VisitPower(const Visit& visit, Record& record) {
  visit("tool_version", record.tool_version);
  visit("commit", record.commit);
  visit("policy_digest", record.policy_digest);
  visit("experiment", record.experiment);
  visit("config_digest", record.config_digest);
  visit("parameters", record.parameters);
  visit("recipe", record.recipe);
  visit("arm", record.arm);
  visit("ensemble_digests", record.ensemble_digests);
  visit("levels", record.levels);
  visit("bugs", record.bugs);
  visit("bugs_caught", record.bugs_caught);
  visit("benign_runs", record.benign_runs);
  visit("false_alarms", record.false_alarms);
}

/// All but the digest.
SealedJson ContentOf(const PowerRecord& record) {
  SealedJson json{{"schema_version", kPowerSchemaVersion}};
  VisitPower([&json](const char* key, const auto& value) { json[key] = value; },
             record);
  return json;
}

void CheckCounts(const SealedFile& file, const PowerRecord& record) {
  const auto check = [&](const char* part, int64_t count, const char* whole,
                         int64_t of) {
    if (0 <= count && count <= of && of > 0) return;
    file.Reject(fmt::format("{} is {} and {} is {}", part, count, whole, of));
  };
  check("bugs_caught", record.bugs_caught, "bugs", record.bugs);
  check("false_alarms", record.false_alarms, "benign_runs", record.benign_runs);
}

}  // namespace

std::string PowerRecord::Digest() const { return SealOf(ContentOf(*this)); }

stats::BinomialInterval PowerRecord::CaughtInterval() const {
  return stats::ClopperPearson(bugs_caught, bugs, kConfidence);
}

double PowerRecord::FalseAlarmBound() const {
  return stats::BinomialUpperBound(false_alarms, benign_runs, kConfidence);
}

std::string PowerRecord::Sentence() const {
  const stats::BinomialInterval caught = CaughtInterval();
  return fmt::format(
      "{} of {} planted bugs caught in arm {} of {} (95 % interval {:.1f} to "
      "{:.1f} %), {} "
      "false alarm{} in {} benign runs (rate below {:.2g} % at 95 %)",
      bugs_caught, bugs, arm, experiment, 100 * caught.lower,
      100 * caught.upper, false_alarms, false_alarms == 1 ? "" : "s",
      benign_runs, 100 * FalseAlarmBound());
}

std::string WhyNotApplicable(const PowerRecord& record,
                             const PowerRecord& verdict) {
  const std::tuple<const char*, std::string, std::string> bounds[] = {
      {"program", record.tool_version, verdict.tool_version},
      {"commit", record.commit, verdict.commit},
      {"policy", record.policy_digest, verdict.policy_digest},
      {"experiment", record.experiment, verdict.experiment},
      {"configuration", record.config_digest, verdict.config_digest},
      {"number of parameters", std::to_string(record.parameters),
       std::to_string(verdict.parameters)},
      {"recipe", record.recipe, verdict.recipe},
      {"ensemble", fmt::format("{}", fmt::join(record.ensemble_digests, ", ")),
       fmt::format("{}", fmt::join(verdict.ensemble_digests, ", "))}};
  for (const auto& [name, measured, judged] : bounds) {
    if (measured == judged) continue;
    return fmt::format("it was measured with {} {}, this is {}", name,
                       measured.empty() ? "none" : measured,
                       judged.empty() ? "none" : judged);
  }
  for (const std::string& level : record.levels) {
    if (std::ranges::count(verdict.levels, level) != 0) continue;
    return fmt::format(
        "it was measured with evidence for {}, which this verdict lacks",
        level);
  }
  return "";
}

void WritePowerRecord(const PowerRecord& record,
                      const std::filesystem::path& path) {
  WriteSealed(ContentOf(record), path);
}

PowerRecord ReadPowerRecord(const std::filesystem::path& path) {
  const SealedFile file(path, kPowerRule);
  file.CheckVersion(kPowerSchemaVersion);
  PowerRecord record;
  VisitPower([&file](const char* key,
                     auto& value) { file.Read(file.content(), key, value); },
             record);
  CheckCounts(file, record);
  file.CheckSeal(record.Digest());
  return record;
}

}  // namespace isoloss::gate
