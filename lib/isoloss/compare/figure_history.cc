#include "isoloss/compare/figure_history.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "isoloss/compare/arm_summary.h"
#include "isoloss/compare/final_window.h"
#include "isoloss/compare/golden.h"
#include "isoloss/stats/summary.h"

namespace isoloss::compare {
namespace {

bool SameFigure(const std::optional<double>& a,
                const std::optional<double>& b) {
  if (!a || !b) return a.has_value() == b.has_value();
  return std::bit_cast<uint64_t>(*a) == std::bit_cast<uint64_t>(*b);
}

/// The run that `run` is paired with; null if none is, or one with other steps.
const Run* BaselineOf(const Run& run, std::span<const Run> runs) {
  const auto& own = run.log.provenance;
  if (own.arm == own.baseline_arm) return nullptr;
  for (const Run& other : runs) {
    if (other.log.provenance.arm == own.baseline_arm &&
        other.log.provenance.seed == own.seed &&
        other.log.steps.step == run.log.steps.step &&
        other.log.steps.loss_nats.size() == run.log.steps.loss_nats.size()) {
      return &other;
    }
  }
  return nullptr;
}

std::optional<double> DifferenceOf(const Run& run, std::span<const Run> runs,
                                   double window_share) {
  const Run* baseline = BaselineOf(run, runs);
  if (baseline == nullptr || run.log.steps.loss_nats.empty()) {
    return std::nullopt;
  }
  const FinalWindow window =
      CompareFinalWindow(PairBySeed(baseline->log.provenance.arm, {baseline},
                                    run.log.provenance.arm, {&run}),
                         window_share);
  if (window.seeds.empty()) return std::nullopt;
  return window.Percents().front();
}

/// Its numbers became NaN or infinite before the last step, and so are those of
/// the end: what was logged before is not the end.
void SetNotFinite(const Run& run, double window_share, FigureRecord& record) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const runlog::Provenance& from = run.log.provenance;
  record.steps = from.steps_planned;
  record.window = static_cast<int64_t>(WindowLength(
      static_cast<size_t>(std::max<int64_t>(from.steps_planned, 0)),
      window_share));
  record.figures[kLossFigure] = kNan;
  record.figures[kGradNormFigure] = kNan;
  if (!run.log.eval.step.empty()) record.figures[kHeldOutFigure] = kNan;
  if (from.arm != from.baseline_arm) record.figures[kDifferenceFigure] = kNan;
}

using BySeed = std::map<int64_t, const FigureRecord*>;

/// The runs of an arm that have the figure, by commit.
std::map<std::string, BySeed> ByCommit(std::span<const FigureRecord> records,
                                       const std::string& arm, size_t figure) {
  std::map<std::string, BySeed> found;
  for (const FigureRecord& record : records) {
    if (record.arm == arm && record.figures[figure].has_value()) {
      found[record.commit].emplace(record.seed, &record);
    }
  }
  return found;
}

/// Earlier and later value of each seed that both have; none if a run of one
/// is of another configuration than the other's.
std::vector<std::pair<double, double>> Shared(const BySeed& earlier,
                                              const BySeed& later,
                                              size_t figure) {
  std::vector<std::pair<double, double>> shared;
  for (const auto& [seed, after] : later) {
    const auto found = earlier.find(seed);
    if (found == earlier.end()) continue;
    const FigureRecord& before = *found->second;
    if (before.config != after->config || before.steps != after->steps ||
        before.window != after->window) {
      return {};
    }
    shared.emplace_back(*before.figures[figure], *after->figures[figure]);
  }
  return shared;
}

bool AllSameBits(const std::vector<std::pair<double, double>>& shared) {
  return std::ranges::all_of(shared, [](const auto& pair) {
    return SameFigure(pair.first, pair.second);
  });
}

struct Change {
  stats::MeanInterval interval;
  bool moved = false;
};

Change ChangeOf(const std::vector<std::pair<double, double>>& shared,
                const Figure& figure, const MoveOptions& options) {
  std::vector<double> changes;
  bool finite_before = true;
  bool finite_after = true;
  for (const auto& [before, after] : shared) {
    finite_before = finite_before && std::isfinite(before);
    finite_after = finite_after && std::isfinite(after);
    changes.push_back(figure.relative ? 100 * (after - before) / before
                                      : after - before);
  }
  Change change;
  change.interval =
      stats::IntervalOfMean(stats::Summarize(changes), options.alpha / 2);
  if (finite_before != finite_after) {
    change.moved = true;
  } else if (shared.size() == 1) {
    change.moved =
        options.tolerance > 0 && std::fabs(changes[0]) > options.tolerance;
  } else {
    // Of NaN neither holds.
    change.moved = change.interval.lower > options.tolerance ||
                   change.interval.upper < -options.tolerance;
  }
  return change;
}

/// Walks along the commits of one figure.
class Follower {
 public:
  Follower(size_t figure, const MoveOptions& options)
      : figure_(figure), options_(options) {}

  FigurePoint Next(const BySeed& now, size_t place) {
    FigurePoint point = {.commit = now.begin()->second->commit,
                         .date = now.begin()->second->date,
                         .seeds = now.size(),
                         .mean = MeanOf(now)};
    point.movement = place == 0 ? Movement::kFirst : Judge(now, point);
    if (point.movement == Movement::kFirst ||
        point.movement == Movement::kOther) {
      point.reference = place;
    }
    if (point.movement == Movement::kFirst ||
        point.movement == Movement::kOther ||
        point.movement == Movement::kMoved) {
      reference_ = now;
      reference_place_ = place;
    }
    previous_ = now;
    return point;
  }

 private:
  double MeanOf(const BySeed& now) const {
    std::vector<double> values;
    for (const auto& [seed, record] : now) {
      values.push_back(*record->figures[figure_]);
    }
    return stats::Mean(values);
  }

  Movement Judge(const BySeed& now, FigurePoint& point) const {
    const auto since_reference = Shared(reference_, now, figure_);
    const auto since_previous = Shared(previous_, now, figure_);
    if (since_reference.empty() || since_previous.empty()) {
      return Movement::kOther;
    }
    const Figure& figure = kFigures[figure_];
    const Change change = ChangeOf(since_reference, figure, options_);
    point.reference = reference_place_;
    point.shared_seeds = since_reference.size();
    point.change = change.interval;
    if (AllSameBits(since_previous)) return Movement::kSameBits;
    if (!change.moved) return Movement::kNotShown;
    point.gradual = !ChangeOf(since_previous, figure, options_).moved;
    return Movement::kMoved;
  }

  size_t figure_;
  MoveOptions options_;
  BySeed reference_;
  BySeed previous_;
  size_t reference_place_ = 0;
};

}  // namespace

bool FigureRecord::operator==(const FigureRecord& other) const {
  return Key() == other.Key() && date == other.date &&
         experiment == other.experiment && program == other.program &&
         config == other.config && recipe == other.recipe &&
         numerics == other.numerics && content == other.content &&
         steps == other.steps && window == other.window &&
         outcome == other.outcome &&
         std::ranges::equal(figures, other.figures, SameFigure);
}

std::vector<FigureRecord> FiguresOf(std::span<const Run> runs,
                                    double window_share) {
  std::vector<FigureRecord> records;
  for (const Run& run : runs) {
    const runlog::Provenance& from = run.log.provenance;
    const ArmSummary summary = SummarizeArm(from.arm, {&run}, window_share);
    const size_t steps = run.log.steps.step.size();
    FigureRecord record = {
        .experiment = from.experiment_name,
        .arm = from.arm,
        .seed = from.seed,
        .program = from.tool_version,
        .config = from.config_digest,
        .recipe = from.recipe,
        .numerics = from.numerics_digest,
        .content = ContentDigest(run.log),
        .steps = static_cast<int64_t>(steps),
        .window = static_cast<int64_t>(WindowLength(steps, window_share))};
    record.figures[kLossFigure] = summary.final_loss_nats;
    record.figures[kHeldOutFigure] = summary.held_out_loss_nats;
    record.figures[kGradNormFigure] = summary.final_grad_norm;
    record.figures[kDifferenceFigure] = DifferenceOf(run, runs, window_share);
    if (!from.complete) SetNotFinite(run, window_share, record);
    records.push_back(std::move(record));
  }
  return records;
}

const char* MovementName(Movement movement) {
  switch (movement) {
    case Movement::kFirst:
      return "first";
    case Movement::kSameBits:
      return "same bits";
    case Movement::kNotShown:
      return "not shown";
    case Movement::kMoved:
      return "MOVED";
    case Movement::kOther:
      return "other";
  }
  return "";
}

FigureSeries FollowFigure(std::span<const FigureRecord> records,
                          std::span<const std::string> commits,
                          const std::string& arm, size_t figure,
                          const MoveOptions& options) {
  FigureSeries series = {.arm = arm, .figure = figure, .points = {}};
  Follower follower(figure, options);
  const std::map<std::string, BySeed> runs = ByCommit(records, arm, figure);
  for (const std::string& commit : commits) {
    const auto now = runs.find(commit);
    if (now == runs.end()) continue;
    series.points.push_back(follower.Next(now->second, series.points.size()));
  }
  return series;
}

}  // namespace isoloss::compare
