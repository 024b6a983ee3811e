// A ladder of runs tells each arm's gap at every size, and what to expect at
// sizes that nobody trained.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/estimators/prediction.h"

namespace isoloss::estimators {

/// The role of an arm in a ladder.
enum class ArmRole { kCandidate, kNull, kControl };
inline constexpr Named<ArmRole> kArmRoles[] = {
    {"candidate", ArmRole::kCandidate},
    {"null", ArmRole::kNull},
    {"control", ArmRole::kControl}};

/// One arm's measurements.
struct LadderArm {
  std::string name;
  std::string recipe;
  ArmRole role = ArmRole::kCandidate;
  std::vector<GapCell> cells = {};
  /// A sentence for each reason not to call it safe: seeds that diverged or
  /// are missing.
  std::vector<std::string> doubts = {};
};

/// The question.
struct LadderQuestion {
  std::vector<Size> sizes;
  /// Percent of the baseline's loss; in (0, 100).
  double margin_percent = 0.25;
  PredictionOptions prediction = {};
};

/// All that is known of one arm.
struct ArmStatement {
  LadderArm arm;
  std::vector<HeldOutRung> held_out;  ///< by form; empty: too few cells
  std::optional<GapInterval> slope;   ///< nats a tenfold
  std::vector<SizeStatement> sizes;   ///< empty: too few cells
  /// The arm's doubts, and what else keeps a size from being safe: the largest
  /// rung's mean gap lies above the margin, or outside its prediction, a form
  /// does not fit, or the control is not told apart from the baseline.
  std::vector<std::string> doubts = {};
};

struct LadderStatement {
  std::string experiment;
  std::string baseline;
  LadderQuestion question;
  /// In nats: percent of the baseline's mean loss in the cell of most
  /// operations. A larger model has less loss: the margin of a size is that
  /// percentage of the loss that the baseline's law expects there, if its cells
  /// determine one; otherwise this one, which is wider.
  double margin_nats = 0;
  std::vector<ArmStatement> arms;
  /// A sentence for each limit of the answer.
  std::vector<std::string> notes;
};

/// Errors   as StateSize. Arms with fewer than 3 cells get no statement of
///          sizes, and a note.
LadderStatement StateLadder(const std::string& experiment,
                            const std::string& baseline,
                            const std::vector<LadderArm>& arms,
                            const LadderQuestion& question);

}  // namespace isoloss::estimators
