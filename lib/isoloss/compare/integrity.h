// May these runs be compared at all, and is each what it claims to be?
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

/// What is asked about a pair of arms; never mixed (docs/gate.md).
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
  /// Where: what was found, with numbers, but the rule. The remedy.
  std::string message;
};

/// One rule of level L0. Rules are checked in the order of the table; each may
/// rely on the earlier ones having found nothing incomparable.
struct IntegrityRule {
  std::string_view name;
  std::string_view promise;  ///< what holds when it finds nothing
  /// Of other programs' runs, whose logs tell less.
  std::string_view foreign_promise;
  std::vector<Finding> (*check)(const Pairing& pairing, Question question);
  /// Whether such logs tell what the rule looks at. If not, nothing is promised
  /// of it; a verdict's warnings say so. Null: they do.
  bool (*is_told)(const Pairing& pairing, Question question) = nullptr;

  /// What holds of this pairing when it finds nothing; "": nothing.
  std::string_view PromiseFor(const Pairing& pairing, Question question) const {
    if (pairing.Knows(runlog::Fact::kRecording)) return promise;
    const bool told = is_told == nullptr || is_told(pairing, question);
    return told ? foreign_promise : "";
  }
};

std::span<const IntegrityRule> IntegrityRules();

/// A sentence for each run of one arm whose program computes otherwise than
/// that of most (numerics_digest): another build, or a machine that computes
/// something else. Runs of other programs have no digest.
std::vector<std::string> MixedNumerics(std::span<const Run* const> arm);

/// A sentence for each arm of another program of which a run shows no training:
/// the loss of its last fifth is not below that of the first by more than the
/// noise of batches. Alone it decides nothing: a fine-tuning may begin near its
/// end.
std::vector<std::string> NoTrainingWarnings(const Pairing& pairing);

/// A sentence for each thing in which logs of other programs differ though
/// pairs should not, of the first pair with one: numbers that may be of
/// batches, and gradient norms by a factor. Alone it decides nothing.
std::vector<std::string> PairWarnings(const Pairing& pairing);

/// A sentence if the loss of another program's run rises from its first fifth
/// to its last by more than the noise of batches; else "".
std::string RisingLoss(const Pairing& pairing);

/// Whether both hold the same losses to the bit, which independent runs do not.
/// Curves of nothing but NaN are alike without being copies.
bool IsCopy(const runlog::StepColumns& a, const runlog::StepColumns& b);

/// Whether the columns of /steps, /eval and /parameters have equal lengths
/// each.
bool ColumnsFit(const runlog::RunLog& log);

/// Whether the values ascend strictly within [least, most].
bool Ascend(const std::vector<int64_t>& values, int64_t least,
            int64_t most = std::numeric_limits<int64_t>::max());

/// Where the learning rates of a run's first steps are not those of the
/// schedule in its experiment_text; the message names no run.
std::optional<Finding> WrongRate(const runlog::Provenance& provenance,
                                 const runlog::StepColumns& steps);

}  // namespace isoloss::compare
