// What every execution of a golden run must reproduce, and how a person reads
// it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "isoloss/runlog/run_log.h"

namespace isoloss::compare {

/// One dataset or attribute of a log, by the digest of its values.
struct ContentPart {
  std::string name;    ///< "/steps/loss_nats" or "final_weights_digest"
  std::string digest;  ///< 16 hexadecimal digits
  /// An attribute or a column of the graph: of the run, not of its steps.
  bool describes_run = false;
  std::optional<double> number = {};  ///< of a real attribute
};

/// All that equal runs have in common: datasets but clocks and events
/// (runlog::Field::reproducible), and of the attributes those that no build or
/// machine changes. Parts without values are left out, so that a column which
/// a later version brings changes nothing of an older log.
std::vector<ContentPart> ContentOf(const runlog::RunLog& log);

/// Of ContentOf: equal content, equal digest.
std::string ContentDigest(const runlog::RunLog& log);

/// How the content of a run that was repeated differs from the golden's.
struct ContentDifference {
  /// Parts of the golden that the run has otherwise or not at all. The golden
  /// is reproduced if there is none.
  std::vector<std::string> differing;
  /// Of these, what follows from the experiment alone, however sums are
  /// rounded: all that describes the run but digests of weights and numerics,
  /// and whether it is complete. Real attributes may differ by 1e-9, as
  /// mathematical libraries do.
  std::vector<std::string> description;
  /// Parts that only the run has: of a newer program.
  std::vector<std::string> added;
};

ContentDifference CompareContent(const runlog::RunLog& golden,
                                 const runlog::RunLog& run);

/// The golden `name` as text that shows in a review what changed: who made it,
/// all digests, and one line for each evaluation and step, ascending, with each
/// number in hexadecimal (exact) and the loss in decimals.
std::string GoldenText(const runlog::RunLog& log, const std::string& name);

}  // namespace isoloss::compare
