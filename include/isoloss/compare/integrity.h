// Decides whether runs may be compared and are what they claim to be.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/compare/pair.h"

namespace isoloss::compare {

/// One question is asked about a pair of arms; never both (docs/gate.md).
enum class Question {
  kPrecision,   ///< is the candidate's recipe as good as the baseline's?
  kRegression,  ///< is this still the run that was approved? Same recipe.
};

enum class Severity {
  kUnverified,    ///< the log does not hold what the rule needs
  kBad,           ///< comparable, but the run itself is broken
  kIncomparable,  ///< a difference between the runs would mean nothing
};

struct Finding {
  Severity severity;
  /// The message has the place, the fault with numbers, the rule, the remedy.
  std::string message;
};

/// Level L0 consists of rules. They are checked in the order of the table, and
/// each may rely on the earlier ones having found nothing incomparable.
struct IntegrityRule {
  std::string_view name;
  std::string_view promise;  ///< what holds if the rule finds nothing
  /// This promise is for other programs' runs, whose logs tell less.
  std::string_view foreign_promise;
  std::vector<Finding> (*check)(const Pairing& pairing, Question question);
  /// Returns whether other programs' logs tell what the rule needs; null: they
  /// do. If not, the rule promises nothing, and a verdict's warnings say so.
  bool (*is_told)(const Pairing& pairing, Question question) = nullptr;

  /// Returns what holds of this pairing if the rule finds nothing; "": nothing.
  std::string_view PromiseFor(const Pairing& pairing, Question question) const {
    if (pairing.Knows(runlog::Fact::kRecording)) return promise;
    const bool told = is_told == nullptr || is_told(pairing, question);
    return told ? foreign_promise : "";
  }
};

std::span<const IntegrityRule> IntegrityRules();

/// Writes a sentence for each run of one arm whose program computes otherwise
/// than that of most runs (numerics_digest): another build, or a machine that
/// computes something else. Runs of other programs have no digest.
std::vector<std::string> MixedNumerics(std::span<const Run* const> arm);

/// Writes a sentence for each arm of another program with a run that shows no
/// training. In such a run, the loss of the last fifth is not below that of the
/// first by more than the noise of batches. This alone decides nothing, since a
/// fine-tuning may begin near its end.
std::vector<std::string> NoTrainingWarnings(const Pairing& pairing);

/// Writes a sentence for each number that differs between the logs of a pair of
/// other programs but should not. These are numbers that may be of batches, and
/// gradient norms that differ by a factor. Only the first pair with a
/// difference counts. This alone decides nothing.
std::vector<std::string> PairWarnings(const Pairing& pairing);

/// Returns a sentence if the loss of another program's run rises from its first
/// fifth to its last by more than the noise of batches; else "".
std::string RisingLoss(const Pairing& pairing);

/// Returns whether both hold the same losses to the bit, as independent runs do
/// not. Curves of only NaN are equal without being copies.
bool IsCopy(const runlog::StepColumns& a, const runlog::StepColumns& b);

/// Returns whether the columns of /steps have equal lengths, and those of /eval
/// and of /parameters as well.
bool ColumnsFit(const runlog::RunLog& log);

/// Returns whether the values ascend strictly within [least, most].
bool Ascend(const std::vector<int64_t>& values, int64_t least,
            int64_t most = std::numeric_limits<int64_t>::max());

/// Returns a finding if the learning rates of a run's first steps are not those
/// of the schedule in its experiment_text. The message names no run.
std::optional<Finding> WrongRate(const runlog::Provenance& provenance,
                                 const runlog::StepColumns& steps);

}  // namespace isoloss::compare
