// States each arm's gap at every size of a ladder of runs, and the gap to
// expect at sizes that nobody trained.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/estimators/prediction.h"

namespace isoloss::estimators {

enum class ArmRole { kCandidate, kNull, kControl };
inline constexpr Named<ArmRole> kArmRoles[] = {
    {"candidate", ArmRole::kCandidate},
    {"null", ArmRole::kNull},
    {"control", ArmRole::kControl}};

/// An arm of a ladder has these measurements.
struct LadderArm {
  std::string name;
  std::string recipe;
  ArmRole role = ArmRole::kCandidate;
  std::vector<GapCell> cells = {};
  /// Each doubt is a sentence with a reason not to call the arm safe: seeds
  /// diverged or are missing.
  std::vector<std::string> doubts = {};
};

/// A question asks whether gaps stay below a margin at some sizes.
struct LadderQuestion {
  std::vector<Size> sizes;
  /// The margin is in percent of the baseline's loss, in (0, 100).
  double margin_percent = 0.25;
  PredictionOptions prediction = {};
};

/// States all that is known of one arm.
struct ArmStatement {
  LadderArm arm;
  std::vector<HeldOutRung> held_out;  ///< by form; empty: too few cells
  std::optional<GapInterval> slope;   ///< nats a tenfold
  std::vector<SizeStatement> sizes;   ///< empty: too few cells
  /// The arm's doubts come first. Each further sentence keeps every size from
  /// being safe: the largest rung's mean gap lies above the margin or outside
  /// its prediction, a form does not fit, or the control is not told apart
  /// from the baseline.
  std::vector<std::string> doubts = {};
};

struct LadderStatement {
  std::string experiment;
  std::string baseline;
  LadderQuestion question;
  /// The margin in nats is a percentage of the baseline's mean loss in the
  /// cell of most operations. A larger model has less loss. If the baseline's
  /// cells determine a law, the margin of a size is that percentage of the
  /// loss expected there. Otherwise the margin of the cell holds, which is
  /// wider.
  double margin_nats = 0;
  std::vector<ArmStatement> arms;
  /// Each note is a sentence about a limit of the answer.
  std::vector<std::string> notes;
};

/// Special  An arm with fewer than 3 cells gets a note, but no statement of
///          sizes.
/// Errors   as StateSize.
LadderStatement StateLadder(const std::string& experiment,
                            const std::string& baseline,
                            const std::vector<LadderArm>& arms,
                            const LadderQuestion& question);

}  // namespace isoloss::estimators
