// A claim that somebody published, as rules on the runs of experiments.
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

/// A contrast measures one of these.
enum class Measure {
  /// Mean over seeds of 100 (L_arm - L_reference) / L_reference, L the held-out
  /// loss of the runs of a seed. Percent.
  kGap,
  /// The gap at `at` minus that at `from`. Percentage points.
  kGapChange,
  /// The gap minus that of other_arm to other_reference in other_cell.
  /// Percentage points.
  kInteraction,
  /// Share of the arm's runs that diverge minus that of the reference's.
  /// Percentage points.
  kDivergence,
  /// The factor of parameters that the arm's losses are worth, by a law of loss
  /// over all cells, which are sizes (estimators::ParameterFactor).
  kParameterFactor,
};
inline constexpr Named<Measure> kMeasures[] = {
    {"gap", Measure::kGap},
    {"gap_change", Measure::kGapChange},
    {"interaction", Measure::kInteraction},
    {"divergence", Measure::kDivergence},
    {"parameter_factor", Measure::kParameterFactor}};

/// Where the claim puts what is measured.
enum class Relation {
  kAbove,   ///< above the bound
  kBelow,   ///< below it
  kWithin,  ///< nearer to 0 than the bound
};
inline constexpr Named<Relation> kRelations[] = {{"above", Relation::kAbove},
                                                 {"below", Relation::kBelow},
                                                 {"within", Relation::kWithin}};

/// The purpose of a contrast.
enum class ContrastRole {
  kClaim,    ///< the claim says it: the verdict depends on it
  kControl,  ///< of a recipe known to be bad: whether the runs would have seen
             ///< one. Nothing is reproduced by being `within` unless a control
             ///< Guards it
  kShown,    ///< the verdict does not depend on it
};
inline constexpr Named<ContrastRole> kContrastRoles[] = {
    {"claim", ContrastRole::kClaim},
    {"control", ContrastRole::kControl},
    {"shown", ContrastRole::kShown}};

/// One number that the claim speaks of.
struct Contrast {
  std::string name = {};
  std::string says = {};  ///< a sentence
  Measure measure = Measure::kGap;
  Relation relation = Relation::kAbove;
  double bound = 0;  ///< in the unit of the measure
  /// kAbove and kBelow: what lies nearer to the bound than this is as good as
  /// equal, which the claim denies.
  std::optional<double> equivalence = std::nullopt;
  ContrastRole role = ContrastRole::kClaim;
  std::string cell = {};
  std::string arm = {};
  std::string reference = {};
  // kInteraction.
  std::string other_cell = {};
  std::string other_arm = {};
  std::string other_reference = {};
  /// Shares of a run's steps at which losses are read.
  double at = 1;
  double from = 0;  ///< kGapChange
};

/// Arms whose runs a contrast reads in a cell; none if it does not read it.
std::set<std::string> ArmsIn(const Contrast& contrast, const std::string& cell);

/// Whether a control measures what `contrast` measures, so that it may show
/// that runs would have seen it: in the same unit, divergence for divergence,
/// and in the same cell, of interactions one of both.
bool MeasuresTheSame(const Contrast& control, const Contrast& contrast);

/// MeasuresTheSame, and lies above or below a bound that is no nearer to 0 than
/// that which `contrast` is `within`.
bool Guards(const Contrast& control, const Contrast& contrast);

/// A student that imitates a teacher in place of an experiment
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

  /// Operations of the products of one run, evaluations included.
  double Operations() const;
  /// Memory that one run needs at least.
  double Bytes() const;
};
/// More are refused: at 10 billion operations a second they take 3 hours.
inline constexpr double kMostStudentOperations = 1e14;
inline constexpr double kMostStudentBytes = 0x1p28;
/// Losses are measured after each tenth of a student's steps.
inline constexpr int64_t kStudentEvaluations = 10;

/// One experiment of the claim.
struct ClaimCell {
  std::string name = "experiment";
  std::string experiment = "experiment.toml";  ///< a file beside claim.toml
  std::vector<std::string> overrides = {};     ///< "section.key=value" each
  std::string stress = {};  ///< a mode of `isoloss study stress`, or ""
  /// In place of the three above.
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
  /// It was judged this often up to these runs, each time with fresh seeds.
  int64_t looks = 1;
  std::vector<Contrast> contrasts = {};

  size_t CountOf(ContrastRole role) const;
  /// Whether a contrast needs no control, or has one that Guards it: only being
  /// `within` a bound needs one.
  bool IsGuarded(const Contrast& contrast) const;
  /// Contrasts whose intervals hold together: the claim's and its controls.
  size_t Counting() const {
    return contrasts.size() - CountOf(ContrastRole::kShown);
  }
  /// Probability that the interval of one of them misses the truth: 5 %,
  /// divided by their number and by that of looks (Bonferroni).
  double Error() const;
};
/// Probability that any of the intervals that count misses the truth, in any
/// look.
inline constexpr double kClaimError = 0.05;

/// "%", "points" or "".
const char* UnitOf(Measure measure);

/// "above 0 %", "within +-0.25 %".
std::string ClaimedText(const Contrast& contrast);

}  // namespace isoloss::estimators
