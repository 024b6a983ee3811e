// Defines a published claim as rules on the runs of experiments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "isoloss/estimators/words.h"

namespace isoloss::estimators {

enum class Measure {
  /// The mean over seeds of 100 (L_arm - L_reference) / L_reference, where L
  /// is the held-out loss of a seed's run. It is in percent.
  kGap,
  /// The gap at `at` minus the gap at `from`. It is in percentage points.
  kGapChange,
  /// The gap minus the gap of other_arm to other_reference in other_cell. It
  /// is in percentage points.
  kInteraction,
  /// The share of the arm's runs that diverge minus the share of the
  /// reference's runs. It is in percentage points.
  kDivergence,
  /// The factor of parameters that the arm's losses are worth, by a law of
  /// loss over all cells, each of which is a size
  /// (estimators::ParameterFactor).
  kParameterFactor,
};
inline constexpr Named<Measure> kMeasures[] = {
    {"gap", Measure::kGap},
    {"gap_change", Measure::kGapChange},
    {"interaction", Measure::kInteraction},
    {"divergence", Measure::kDivergence},
    {"parameter_factor", Measure::kParameterFactor}};

/// Says where the measured number lies according to the claim.
enum class Relation {
  kAbove,   ///< above the bound
  kBelow,   ///< below it
  kWithin,  ///< nearer to 0 than the bound
};
inline constexpr Named<Relation> kRelations[] = {{"above", Relation::kAbove},
                                                 {"below", Relation::kBelow},
                                                 {"within", Relation::kWithin}};

enum class ContrastRole {
  kClaim,    ///< the claim says it: the verdict depends on it
  kControl,  ///< it compares a recipe known to be bad, and shows whether the
             ///< runs would have seen one. No claim is reproduced by being
             ///< `within` a bound unless a control Guards it
  kShown,    ///< the verdict does not depend on it
};
inline constexpr Named<ContrastRole> kContrastRoles[] = {
    {"claim", ContrastRole::kClaim},
    {"control", ContrastRole::kControl},
    {"shown", ContrastRole::kShown}};

/// A contrast is one number that the claim speaks of.
struct Contrast {
  std::string name = {};
  std::string says = {};  ///< a sentence
  Measure measure = Measure::kGap;
  Relation relation = Relation::kAbove;
  double bound = 0;  ///< in the unit of the measure
  /// The alternative to the bound, in the unit of the measure: what the source
  /// reports. kWithin has the size that the source reports inside the bound.
  /// Every contrast of role kClaim has one, and no other has.
  std::optional<double> published_size = std::nullopt;
  std::string size_source = {};  ///< who says so; "ours: ..." if no source does
  /// An effect that is nearer to 0 is no effect, for kAbove and kBelow.
  std::optional<double> equivalence = std::nullopt;
  /// The standard deviation over seeds that earlier runs had.
  std::optional<double> spread = std::nullopt;
  ContrastRole role = ContrastRole::kClaim;
  std::string cell = {};
  std::string arm = {};
  std::string reference = {};
  // Only kInteraction uses these three.
  std::string other_cell = {};
  std::string other_arm = {};
  std::string other_reference = {};
  /// These are the shares of a run's steps at which losses are read.
  double at = 1;
  double from = 0;  ///< kGapChange

  /// Returns how far the published size lies beyond the bound, in the claimed
  /// direction; 0 without a published size. It is for kAbove and kBelow.
  double Effect() const;
  /// Returns the effect below which counts as nothing: the published one if
  /// `equivalence` does not say less.
  double Nothing() const { return equivalence.value_or(Effect()); }
};

/// Returns the arms whose runs a contrast reads in a cell. It returns none if
/// the contrast does not read the cell.
std::set<std::string> ArmsIn(const Contrast& contrast, const std::string& cell);

/// Returns whether a control measures the same as `contrast`, so that it may
/// show that the runs would have seen a difference. Both must have the same
/// unit, and both or neither must measure divergence. They must share a cell;
/// a control that is an interaction may share either of its two.
bool MeasuresTheSame(const Contrast& control, const Contrast& contrast);

/// Returns whether a control MeasuresTheSame, and claims a number above or
/// below a bound that is no nearer to 0 than the bound which `contrast` is
/// `within`.
bool Guards(const Contrast& control, const Contrast& contrast);

/// A student imitates a teacher and takes the place of an experiment
/// (studies::TrainStudent).
struct Student {
  size_t width = 64;
  size_t depth = 4;
  size_t hidden = 256;
  size_t batch = 256;
  int64_t steps = 400;  ///< a multiple of 10
  double lr = 1e-3;
  double label_noise = 1e-3;          ///< its standard deviation
  std::string format = "e4m3.floor";  ///< formats::QuantizationByName
  size_t seeds = 12;                  ///< 1 to this one

  /// Returns the number of operations that the products of one run take,
  /// evaluations included.
  double Operations() const;
  /// Returns the least memory that one run needs.
  double Bytes() const;
};
/// A student with more operations is refused: this number takes 3 hours
/// at 10 billion operations a second.
inline constexpr double kMostStudentOperations = 1e14;
inline constexpr double kMostStudentBytes = 0x1p28;
/// Losses are measured after each tenth of a student's steps.
inline constexpr int64_t kStudentEvaluations = 10;

/// A cell is one experiment of the claim.
struct ClaimCell {
  std::string name = "experiment";
  std::string experiment = "experiment.toml";  ///< a file beside claim.toml
  std::vector<std::string> overrides = {};     ///< "section.key=value" each
  std::string stress = {};  ///< a mode of `isoloss study stress`, or ""
  /// A student replaces the experiment, its overrides and its stress.
  std::optional<Student> student = std::nullopt;
};

struct Claim {
  std::string title = {};
  std::string statement = {};
  std::string paper = {};
  std::string section = {};
  std::string arxiv = {};
  std::string published = {};  ///< the paper's setting
  std::string here = {};       ///< how this one differs
  std::vector<ClaimCell> cells = {};
  /// Counts how often the claim was judged up to these runs, each time with
  /// fresh seeds.
  int64_t looks = 1;
  std::vector<Contrast> contrasts = {};

  size_t CountOf(ContrastRole role) const;
  /// Returns whether a contrast needs no control, or has a control that Guards
  /// it. Only a contrast `within` a bound needs one.
  bool IsGuarded(const Contrast& contrast) const;
  /// Counts the contrasts whose intervals hold together: the contrasts of the
  /// claim and its controls.
  size_t Counting() const {
    return contrasts.size() - CountOf(ContrastRole::kShown);
  }
  /// Returns the probability that the interval of one counting contrast misses
  /// the truth: 5 %, divided by the number of these contrasts and by the
  /// number of looks (Bonferroni).
  double Error() const;
};
/// This is the probability that any counting interval misses the truth in any
/// look.
inline constexpr double kClaimError = 0.05;

/// Returns "%", "points" or "".
const char* UnitOf(Measure measure);

/// Returns the published size, such as "0.1 %".
std::string SizeText(const Contrast& contrast);

/// Returns a text such as "above 0 %" or "within +-0.25 %".
std::string ClaimedText(const Contrast& contrast);

}  // namespace isoloss::estimators
