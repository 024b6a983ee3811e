// Records how often the seeds of an experiment were tested. All looks together
// must pass a recipe on the margin no more often than a single look may.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "isoloss/gate/policy.h"
#include "isoloss/runlog/run_log.h"

namespace isoloss::gate {

inline constexpr const char* kLooksFile = "looks.json";
inline constexpr int64_t kLooksSchemaVersion = 1;

/// Holds all that a verdict knows of the looks at its seed pairs.
struct Looks {
  struct Taken {
    int64_t pairs = 0;
    double nominal_alpha = 0;  ///< of each t test; 0: nothing was left to spend
  };
  /// The planned numbers of pairs must ascend. The plan ends with the last
  /// one.
  std::vector<int64_t> planned = {};
  /// The earlier looks come first; this verdict's look is the last.
  std::vector<Taken> taken = {};
  std::string unknown = {};  ///< why nobody knows; then the others are empty
  std::string note = {};     ///< what was not as planned; may be empty
  /// A verdict on fewer of these pairs is known to nobody's plan.
  bool unpaid = false;

  /// Returns the level of this look: policy.alpha if looks are unknown.
  double NominalAlpha(const Policy& policy) const;
  /// Returns these looks, which were made at all of alpha, at the policy's
  /// share.
  Looks At(const Policy& policy) const;
  /// Says whether the plan allows another look at more pairs.
  bool MayGoOn() const;
  /// Returns "look 3 at 12 pairs, planned at 4, 8, 12; nominal alpha 0.0429;
  /// before: 4 pairs (0.00069), 8 pairs (0.0158)".
  std::string Sentence() const;
};

/// Holds one look, as looks.json of a results folder keeps it.
struct Look {
  std::vector<int64_t> seeds = {};  ///< of the pairs, ascending
  std::string policy_digest = {};
  double nominal_alpha = 0;
  /// Each candidate arm has L5's outcome, such as "PASS".
  std::map<std::string, std::string> outcomes = {};

  bool operator==(const Look&) const = default;
};

/// Holds the content of looks.json of a results folder.
struct LookRecord {
  // The fields down to `arms` identify the experiment.
  std::string experiment = {};
  std::string config_digest = {};
  std::string corpus_digest = {};
  std::string baseline_arm = {};
  /// Each arm has a digest of its recipe and exchange.
  std::map<std::string, std::string> arms = {};
  /// The planned numbers of pairs must ascend.
  std::vector<int64_t> planned = {};
  std::vector<Look> looks = {};

  bool operator==(const LookRecord&) const = default;

  /// Returns the digest of all fields above, 16 hexadecimal digits.
  std::string Digest() const;
};

/// Returns the record of these runs' experiment, with no plan and no look yet.
LookRecord RecordOf(std::span<const runlog::Provenance* const> runs);

/// Says in which fields two records are of different experiments:
/// "config_digest is A, here B". Empty if they are of one experiment. An arm
/// that only one record has is no difference.
std::string ExperimentDifference(const LookRecord& kept, const LookRecord& now);

/// Returns the looks up to a verdict on the pairs of `seeds` (ascending). The
/// level of each look follows from policy.alpha and the numbers of pairs
/// (stats::LookLevels, spending as O'Brien and Fleming). The seeds of an
/// earlier look repeat that look. Seeds that contain those of the last look
/// are the next look. Any different selection was made after its results were
/// seen, so it has no alpha to spend.
/// Errors   as stats::LookLevels, which the record's checks exclude.
Looks LooksAt(const LookRecord& record, const std::vector<int64_t>& seeds,
              const Policy& policy);

/// Writes JSON with the digest of its content, and replaces `path` in one
/// step.
/// Errors   IoError naming the path and the system's reason.
void WriteLooks(const LookRecord& record, const std::filesystem::path& path);

/// Errors   IoError if it can't be read; FormatError naming the key if it is
///          not what WriteLooks writes, is longer than 1 MiB, numbers are out
///          of order, or the digest is not that of the content.
LookRecord ReadLooks(const std::filesystem::path& path);

}  // namespace isoloss::gate
