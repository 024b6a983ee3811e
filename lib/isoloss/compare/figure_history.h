// Figures of one experiment over commits: at which commit did one move?
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "isoloss/compare/pair.h"
#include "isoloss/stats/mean_interval.h"

namespace isoloss::compare {

/// A number that each run has.
struct Figure {
  const char* name;
  const char* unit;
  /// A change is given in percent of the earlier value; else in `unit`.
  bool relative;
};

enum FigureIndex : size_t {
  kLossFigure,
  kHeldOutFigure,
  kGradNormFigure,
  kDifferenceFigure,
  kFigureCount
};

/// The first three of the run alone, the last one against the baseline's run of
/// the same seed (SeedDifference::final_window).
inline constexpr Figure kFigures[kFigureCount] = {
    {"loss", "nats", true},
    {"held_out", "nats", true},
    {"grad_norm", "", true},
    {"difference_percent", "%", false}};

/// What is kept of one run that was made by one commit.
struct FigureRecord {
  std::string commit = {};  ///< 7 to 64 hexadecimal digits
  std::string date = {};  ///< of the commit, "2026-11-24T12:00:00+01:00", or ""
  std::string experiment = {};
  std::string arm = {};
  int64_t seed = 0;
  std::string program = {};   ///< "isoloss 0.1.0"
  std::string config = {};    ///< Provenance::config_digest
  std::string recipe = {};    ///< its name
  std::string numerics = {};  ///< Provenance::numerics_digest
  std::string content = {};   ///< ContentDigest
  int64_t steps = 0;
  int64_t window = 0;        ///< steps of the final window
  std::string outcome = {};  ///< of the verdict on the arm, or ""
  /// Empty where the run has none; may be NaN or infinite.
  std::array<std::optional<double>, kFigureCount> figures = {};

  /// Numbers by their bits, so that NaN equals itself.
  bool operator==(const FigureRecord& other) const;
  /// Which run it is of: commit, arm and seed.
  using RunKey = std::tuple<std::string, std::string, int64_t>;
  RunKey Key() const { return {commit, arm, seed}; }
};

/// The figures of each run, without commit, date and outcome. Differences are
/// to the run of the log's own baseline arm and seed, if that is among `runs`
/// and has the same steps. A run that is not complete is taken for one that its
/// own numbers ended: it has the planned steps, and NaN for figures.
std::vector<FigureRecord> FiguresOf(std::span<const Run> runs,
                                    double window_share);

/// What a commit did to a figure.
enum class Movement {
  kFirst,     ///< nothing to compare with
  kSameBits,  ///< in every seed as at the commit before
  kNotShown,  ///< other bits, but not shown to have moved
  kMoved,
  kOther,  ///< another configuration, or other seeds: not comparable
};

/// "first", "same bits", "not shown", "MOVED", "other".
const char* MovementName(Movement movement);

struct MoveOptions {
  /// Chance that a commit which moved nothing, but changed bits, is said to
  /// have moved a figure; in (0, 1).
  double alpha = 0.01;
  /// Changes within it are no move, in percent (relative figures) or in the
  /// figure's unit; >= 0.
  double tolerance = 0;
};

/// A figure at one commit.
struct FigurePoint {
  std::string commit = {};
  std::string date = {};
  size_t seeds = 0;
  double mean = 0;  ///< over seeds
  Movement movement = Movement::kFirst;
  /// Place of the point that `change` is against: the one that moved last, or
  /// the first.
  size_t reference = 0;
  size_t shared_seeds = 0;  ///< with the reference; 0: no change is known
  /// Mean and interval of the paired changes of shared seeds.
  stats::MeanInterval change = {};
  /// A move that the change from the point before does not show by itself: any
  /// commit since the reference that changed bits may have part in it.
  bool gradual = false;
};

struct FigureSeries {
  std::string arm;
  size_t figure = 0;
  std::vector<FigurePoint> points;  ///< of commits that have the figure
};

/// Follows a figure of an arm over `commits`, in their order.
///
/// A commit at which no bit of any shared seed changed is never tested. Another
/// one is compared with the reference, seed by seed, since runs of one seed
/// start from the same weights and see the same batches. It moved the figure if
/// the interval of the mean change at level 1 - alpha (Student's t) lies
/// outside [-tolerance, tolerance] altogether. One seed has no interval: its
/// change moves the figure if it exceeds a tolerance above 0. A mean that
/// becomes, or ceases to be, finite has moved.
///
/// The reference is not the commit before, so that a slow drift adds up until
/// it is seen.
FigureSeries FollowFigure(std::span<const FigureRecord> records,
                          std::span<const std::string> commits,
                          const std::string& arm, size_t figure,
                          const MoveOptions& options);

}  // namespace isoloss::compare
