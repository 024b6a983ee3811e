// States each arm's gap at every size of a ladder of runs, and the gap to
// expect at sizes that nobody trained.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/estimators/gap_cell.h"
#include "isoloss/estimators/gap_line.h"
#include "isoloss/estimators/rate_exponent.h"
#include "isoloss/estimators/words.h"

namespace isoloss::estimators {

enum class ArmRole { kCandidate, kNull, kControl };
inline constexpr Named<ArmRole> kArmRoles[] = {
    {"candidate", ArmRole::kCandidate},
    {"null", ArmRole::kNull},
    {"control", ArmRole::kControl}};

/// A cell that was trained with more tokens a step than its twin, and with
/// equally many tokens in all.
struct LargeBatch {
  GapCell cell;
  std::string twin;  ///< name of a cell of the ladder
};

/// An arm of a ladder has these measurements.
struct LadderArm {
  std::string name;
  std::string recipe;
  ArmRole role = ArmRole::kCandidate;
  std::vector<GapCell> cells = {};
  /// No line is fitted through this cell.
  std::optional<LargeBatch> large_batch = std::nullopt;
  /// Each doubt is a sentence with a reason not to call the arm safe: seeds
  /// diverged or are missing, or the learning rates were not tuned.
  std::vector<std::string> doubts = {};
};

/// A question asks whether gaps stay inside a margin at some sizes.
struct LadderQuestion {
  std::vector<Size> sizes = {};
  /// The margin is in percent of the baseline's loss, in (0, 100).
  double margin_percent = 0.25;
  double confidence = 0.9;  ///< of two-sided intervals; in (0, 1)
};

enum class ScaleVerdict {
  kSafe,          ///< the line's interval lies inside the margin
  kUnsafe,        ///< it lies outside
  kInconclusive,  ///< neither, or the arm has a doubt
};
inline constexpr Named<ScaleVerdict> kScaleVerdicts[] = {
    {"safe", ScaleVerdict::kSafe},
    {"unsafe", ScaleVerdict::kUnsafe},
    {"inconclusive", ScaleVerdict::kInconclusive}};

/// Shows what another law expects at the size. It decides nothing.
struct OtherLaw {
  std::string name;
  GapInterval gap_percent;
};

struct SizeStatement {
  Size size;
  GapInterval gap_percent = {};  ///< of the line, in percent of the loss
  ScaleVerdict verdict = ScaleVerdict::kInconclusive;
  double decades_beyond = 0;  ///< of operations, beyond the largest cell
  /// The mean gap of the largest cell must grow by so much in each of these
  /// decades to leave the margin at the size. Empty if that gap lies outside
  /// the margin, or if the size takes no more operations than the cell.
  std::optional<double> must_grow = std::nullopt;
  /// With so many seeds of each cell, an arm without a gap would be safe in as
  /// many ladders as the confidence says.
  size_t seeds_without_gap = 0;
  std::vector<OtherLaw> others = {};
};

/// States all that is known of one arm.
struct ArmStatement {
  LadderArm arm;
  std::optional<GapInterval> slope;  ///< percent a decade of operations
  std::optional<double> scatter;     ///< ScatterOfCells
  std::vector<SizeStatement> sizes;  ///< empty: too few cells
  /// The large batch's gap minus its twin's, percent.
  std::optional<GapInterval> of_batch = std::nullopt;
  /// The arm's doubts come first. Each further sentence keeps every size from
  /// being safe: the interval of the largest cell lies outside the margin, or
  /// the control is not told apart from the baseline.
  std::vector<std::string> doubts = {};
};

struct LadderStatement {
  std::string experiment;
  std::string baseline;
  LadderQuestion question;
  std::vector<ArmStatement> arms;
  RateExponent rate = {};  ///< with which learning rates followed the width
  /// Each note is a sentence about a limit of the answer.
  std::vector<std::string> notes;
};

/// Special  An arm with fewer than kCellsOfALine cells gets a note, but no
///          statement of sizes.
/// Errors   ConfigError for a margin or a confidence out of range; as LineAt.
LadderStatement StateLadder(const std::string& experiment,
                            const std::string& baseline,
                            const std::vector<LadderArm>& arms,
                            const LadderQuestion& question);

}  // namespace isoloss::estimators
