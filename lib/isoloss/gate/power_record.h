// What this gate was measured to catch, as power.json of `isoloss lab mutants
// run` records it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/gate/policy.h"
#include "isoloss/stats/binomial_interval.h"

namespace isoloss::gate {

inline constexpr int64_t kPowerSchemaVersion = 3;

/// One measurement: planted bugs and benign runs under one policy.
struct PowerRecord {
  std::string tool_version;        ///< "isoloss 0.1.0", of the gate
  std::string commit = {};         ///< of that program
  std::string policy_digest;       ///< PolicyDigest of the policy it ran with
  std::string experiment = {};     ///< name of the experiment it ran
  std::string config_digest = {};  ///< of its configuration, as in run logs
  int64_t parameters = 0;          ///< of its model
  std::string recipe = {};         ///< of the arm that bugs were planted in
  std::string arm = {};            ///< name of that arm
  /// Digests of the null ensembles that it judged by.
  std::vector<std::string> ensemble_digests = {};
  std::vector<std::string> levels = {};  ///< that had evidence, "L0", …
  int64_t bugs = 0;                      ///< planted bugs
  int64_t bugs_caught = 0;               ///< in every seed
  int64_t benign_runs = 0;
  int64_t false_alarms = 0;  ///< benign runs that did not pass

  bool operator==(const PowerRecord&) const = default;

  /// Of all of the above, 16 hexadecimal digits.
  std::string Digest() const;

  /// Two-sided 95 % limits of the share caught.
  stats::BinomialInterval CaughtInterval() const;
  /// One-sided 95 % limit of the false-alarm rate.
  double FalseAlarmBound() const;
  /// "41 of 41 planted bugs caught in arm mxfp8 of golden_nano (95 %
  /// interval 91.4 to 100 %), 0 false alarms in 300 benign runs (rate below 1.0
  /// % at 95 %)".
  std::string Sentence() const;
};

/// Why `record` does not speak for a verdict; "" if it does. `verdict`: what a
/// record of it would be bound to, figures and `arm` aside. What was measured
/// with another program, policy, experiment, size, recipe, ensemble or with
/// evidence that the verdict lacks says nothing of it.
std::string WhyNotApplicable(const PowerRecord& record,
                             const PowerRecord& verdict);

/// JSON with the digest of its content; replaces `path` in one step.
/// Errors   IoError naming the path and the system's reason.
void WritePowerRecord(const PowerRecord& record,
                      const std::filesystem::path& path);

/// Errors   IoError if it can't be read; FormatError naming the key if it is
///          not what WritePowerRecord writes, counts contradict each other or
///          the digest is not that of the content.
PowerRecord ReadPowerRecord(const std::filesystem::path& path);

}  // namespace isoloss::gate
