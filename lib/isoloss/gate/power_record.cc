#include "isoloss/gate/power_record.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <tuple>

#include "isoloss/base/atomic_file.h"
#include "isoloss/base/digest.h"
#include "isoloss/base/error.h"
#include "isoloss/base/text_file.h"

namespace isoloss::gate {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kConfidence = 0.95;

/// Parts of a power record by their keys: visit(key, part of record).
template <typename Visit, typename Record>
void VisitRecord(const Visit& visit, Record& record) {
  const bool bound = record.schema_version > kOldestPowerSchemaVersion;
  visit("tool_version", record.tool_version);
  if (bound) visit("commit", record.commit);
  visit("policy_digest", record.policy_digest);
  visit("experiment", record.experiment);
  if (bound) {
    visit("config_digest", record.config_digest);
    visit("parameters", record.parameters);
  }
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
Json ContentOf(const PowerRecord& record) {
  Json json{{"schema_version", record.schema_version}};
  VisitRecord(
      [&json](const char* key, const auto& value) { json[key] = value; },
      record);
  return json;
}

[[noreturn]] void Reject(const std::filesystem::path& path,
                         const std::string& what) {
  ThrowError(ErrorKind::kFormat,
             "{}: {}, but a power record is what `isoloss mutants run` writes. "
             "Measure again.",
             path.string(), what);
}

template <typename T>
bool HasType(const Json& value) {
  if constexpr (std::is_same_v<T, int64_t>) {
    return value.is_number_integer();
  } else if constexpr (std::is_same_v<T, std::string>) {
    return value.is_string();
  } else {
    return value.is_array() &&
           std::all_of(value.begin(), value.end(),
                       [](const Json& entry) { return entry.is_string(); });
  }
}

void CheckCounts(const std::filesystem::path& path, const PowerRecord& record) {
  const auto check = [&](const char* part, int64_t count, const char* whole,
                         int64_t of) {
    if (0 <= count && count <= of && of > 0) return;
    Reject(path, fmt::format("{} is {} and {} is {}", part, count, whole, of));
  };
  check("bugs_caught", record.bugs_caught, "bugs", record.bugs);
  check("false_alarms", record.false_alarms, "benign_runs", record.benign_runs);
}

}  // namespace

std::string PowerRecord::Digest() const {
  return DigestToHex(DigestOf(ContentOf(*this).dump()));
}

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
  if (record.schema_version <= kOldestPowerSchemaVersion) {
    return "its record does not say of which commit and configuration it is";
  }
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
  Json json = ContentOf(record);
  json["digest"] = record.Digest();
  const std::string text = json.dump(2) + "\n";
  WriteFileAtomically(path, text);
}

PowerRecord ReadPowerRecord(const std::filesystem::path& path) {
  const std::string text =
      ReadTextFile(path, "Make it with `isoloss mutants run`.");
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) Reject(path, "it is no JSON object");
  PowerRecord record;
  record.schema_version = 0;
  if (json.contains("schema_version") &&
      json["schema_version"].is_number_integer()) {
    record.schema_version = json["schema_version"].get<int64_t>();
  }
  if (record.schema_version < kOldestPowerSchemaVersion ||
      record.schema_version > kPowerSchemaVersion) {
    Reject(path, fmt::format("schema_version is not {} to {}",
                             kOldestPowerSchemaVersion, kPowerSchemaVersion));
  }
  VisitRecord(
      [&](const char* key, auto& value) {
        using Value = std::decay_t<decltype(value)>;
        if (!json.contains(key) || !HasType<Value>(json[key])) {
          Reject(path,
                 fmt::format("key {} is missing or of another type", key));
        }
        value = json[key].get<Value>();
      },
      record);
  CheckCounts(path, record);
  const std::string digest = record.Digest();
  if (!json.contains("digest") || json["digest"] != digest) {
    Reject(path, fmt::format(
                     "its digest is {}, that of its figures {}: it was edited",
                     json.value("digest", Json()).dump(), digest));
  }
  return record;
}

}  // namespace isoloss::gate
